"""A connection to NATS that is given up while it is made (E7: a node that drains waits for nobody)."""

import asyncio
import os
import signal
from contextlib import contextmanager

import pytest

from evenlane.engine.errors import Unreachable
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions


class Deaf:
    """nats-py's client as it is when a cancellation meets the server's answer: it passes over it, and ends as it is
    told to.
    """

    is_closed = is_connected = False
    last_error = None

    def __init__(self, end=None):
        self._end = end
        self.closed = 0

    async def connect(self, *_servers, **_options):
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if self._end is not None:
                raise self._end from None

    async def close(self):
        self.closed += 1
        if self.is_connected:
            await self.connect()


@pytest.mark.parametrize(
    "end", [None, OSError("refused"), asyncio.CancelledError()], ids=["gone on", "refused", "heard"]
)
async def test_who_is_cancelled_hears_of_it(end):
    connection = Connection(NatsOptions(), "a test")
    connection._client = client = Deaf(end)
    opening = asyncio.create_task(connection.open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert 1 == client.closed


async def test_who_is_cancelled_while_it_closes_hears_of_it_and_what_was_asked_fails():
    connection = Connection(NatsOptions(), "a test")
    connection._client = client = Deaf()
    client.is_connected = connection._opened = True
    asked = asyncio.get_running_loop().create_future()
    connection._asked = {b"1": asked}
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert "the connection was closed" == str(asked.exception())


async def test_a_server_that_is_silent_is_no_cancellation():
    connection = Connection(NatsOptions(connect_timeout=0.01), "a test")
    connection._client = client = Deaf(asyncio.CancelledError())
    with pytest.raises(Unreachable, match="does not answer: TimeoutError"):
        await connection.open()
    assert 1 == client.closed


async def test_in_a_task_that_was_cancelled_before_one_can_be_made():
    """As what ends in order may need one."""

    async def late():
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            connection = Connection(NatsOptions(connect_timeout=0.01), "a test")
            connection._client = Deaf(OSError("refused"))
            with pytest.raises(Unreachable):
                await connection.open()
            return "told"

    task = asyncio.create_task(late())
    await asyncio.sleep(0)
    task.cancel()
    assert "told" == await task


@contextmanager
def frozen(server):
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.real
async def test_to_close_one_waits_for_no_server_that_hangs(nats_server):
    """E7: with more on its way than the sockets hold."""
    connection = Connection(NatsOptions((nats_server.url,)), "a test")
    await connection.open()
    with frozen(nats_server):
        for _ in range(100):
            connection.send("a.subject", b"x" * 100_000)
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await connection.close()
    assert not connection.connected
