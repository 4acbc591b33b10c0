"""Helpers of tests of the pusher."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from evenlane.engine.core.message.handler_exceptions import Pause
from evenlane.engine.node.push.response import PushFailed


async def failed(pusher, of):
    with pytest.raises(PushFailed) as caught:
        await pusher(of)
    assert str(caught.value).isprintable()
    return caught.value


async def paused(pusher, of):
    with pytest.raises(Pause) as caught:
        await pusher(of)
    return caught.value


def breaker_of(pusher, project="acme"):
    return pusher._endpoints._of[project].breaker


@asynccontextmanager
async def raw_server(serve):
    """A server whose bytes the test writes, as no HTTP library would."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
