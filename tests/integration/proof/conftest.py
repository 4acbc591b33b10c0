import pytest

from evenlane.engine.runtime.embedded.nats import NatsServer


@pytest.fixture
async def url(tmp_path):
    """The address of a nats-server for this test alone."""
    server = NatsServer(tmp_path, fast=True)
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()
