"""An environment of the test's own on the servers that all tests share."""

import itertools

import pytest

from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions

_fresh = itertools.count()


@pytest.fixture
async def env(nats_server):
    """The name of an unused environment; its streams are deleted after the test."""
    name = f"own{next(_fresh)}"
    yield name
    if not nats_server.is_running:
        await nats_server.start()
    connection = Connection(NatsOptions((nats_server.url,)), "test")
    await connection.open()
    for stream in (await connection.api("STREAM.NAMES"))["streams"] or ():
        if name in stream.split("_"):
            await connection.api(f"STREAM.DELETE.{stream}")
    await connection.close()
