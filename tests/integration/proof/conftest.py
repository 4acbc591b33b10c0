import pytest

from evenlane.engine.runtime.embedded.nats import NatsServer


@pytest.fixture
async def url(tmp_path):
    """A nats-server of the test's own."""
    server = NatsServer(tmp_path)
    await server.start()
    try:
        yield server.url
    finally:
        await server.stop()
