"""E7: a connection to NATS closes although its server hangs."""

import asyncio
import os
import signal
from contextlib import contextmanager

import pytest

from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from tests.support.until import until


@contextmanager
def suspended(server):
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.real
async def test_close_does_not_wait_for_hanging_server(nats_server):
    """Although more is pending than the sockets hold."""
    connection = Connection(NatsOptions((nats_server.url,)), "a test")
    await connection.open()
    with suspended(nats_server):
        for _ in range(100):
            connection.send("a.subject", b"x" * 100_000)
        await asyncio.sleep(0)
        async with asyncio.timeout(60):
            await connection.close()
    assert not connection.is_connected


async def test_cancelled_open_leaves_no_connection():
    """E7: the server takes the connection, and then answers nothing more. A client that is left would connect again
    for ever.
    """
    asked = asyncio.Event()

    async def greet(reader, writer):
        writer.write(b'INFO {"server_id":"x","version":"2.11.0","proto":1,"headers":true,"max_payload":1048576}\r\n')
        pings = 0
        while line := await reader.readline():
            if line.startswith(b"PING"):
                pings += 1
                if pings == 1:
                    writer.write(b"PONG\r\n")
                else:
                    asked.set()
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    connection = Connection(NatsOptions((f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}",)), "a test")
    opening = asyncio.create_task(connection.open())
    try:
        await asyncio.wait_for(asked.wait(), 60)
        opening.cancel()
        await asyncio.wait([opening])
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()}, what="the end of the client's tasks")
    finally:
        await connection.close()
        server.close()
    assert opening.cancelled()
