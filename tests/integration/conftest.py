"""An environment of the test's own on the servers that all tests share."""

import itertools

import pytest

from tests.support.streams import delete_streams

_fresh = itertools.count()


@pytest.fixture
async def env(nats_server):
    """The name of an unused environment; its streams are deleted after the test."""
    name = f"own{next(_fresh)}"
    yield name
    if not nats_server.is_running:
        await nats_server.start()
    await delete_streams(nats_server.url, name)
