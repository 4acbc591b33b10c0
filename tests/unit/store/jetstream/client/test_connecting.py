"""A connection to NATS that is cancelled while it opens or closes (E7: a draining node waits for no server)."""

import asyncio

import pytest

from evenlane.engine.errors import Unreachable
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions


class Deaf:
    """nats-py's client when a cancellation meets the server's answer: it ignores that, and ends with `end`."""

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
    "end", [None, OSError("refused"), asyncio.CancelledError()], ids=["continues", "refused", "cancelled"]
)
async def test_cancelled_open_is_cancelled(end):
    connection = Connection(NatsOptions(), "a test")
    connection._client = client = Deaf(end)
    opening = asyncio.create_task(connection.open())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert 1 == client.closed


async def refused_when_cancelled(_server):
    """An attempt of nats-py that is refused in the instant of its cancellation, before Python 3.12."""
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        raise ConnectionRefusedError("refused") from None


@pytest.mark.parametrize(("timeout_s", "end"), [(0.02, Unreachable), (60, asyncio.CancelledError)])
async def test_open_ends_if_a_refusal_hides_its_cancellation(timeout_s, end):
    """E7: nats-py would retry for ever."""
    connection = Connection(NatsOptions(connect_timeout=timeout_s), "a test")
    connection._client._connect_to_server = refused_when_cancelled
    opening = asyncio.create_task(connection.open())
    await asyncio.sleep(0)
    if end is asyncio.CancelledError:
        opening.cancel()
    ended, _ = await asyncio.wait({opening}, timeout=30)
    assert ended, "it retries for ever"
    with pytest.raises(end):
        await opening


async def test_cancelled_close_fails_pending_requests():
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


async def test_silent_server_is_unreachable_not_cancelled():
    connection = Connection(NatsOptions(connect_timeout=0.01), "a test")
    connection._client = client = Deaf(asyncio.CancelledError())
    with pytest.raises(Unreachable, match="does not answer: TimeoutError"):
        await connection.open()
    assert 1 == client.closed


async def test_cancelled_task_can_open_connection():
    """An orderly end may need a connection."""

    async def late():
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            connection = Connection(NatsOptions(connect_timeout=0.01), "a test")
            connection._client = Deaf(OSError("refused"))
            with pytest.raises(Unreachable):
                await connection.open()
            return "unreachable"

    task = asyncio.create_task(late())
    await asyncio.sleep(0)
    task.cancel()
    assert "unreachable" == await task
