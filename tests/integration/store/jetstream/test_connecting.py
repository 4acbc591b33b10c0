"""E7: a connection to NATS closes although its server hangs."""

import asyncio
import os
import signal
from contextlib import contextmanager

import pytest

from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions


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
