import asyncio

import pytest

from evenlane.engine.runtime.embedded.nats import NatsServer


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory):
    """One nats-server for all tests here; one that kills it starts it again."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())
