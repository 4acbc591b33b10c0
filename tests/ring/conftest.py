import asyncio

import pytest

from evenlane.engine.runtime.embedded.etcd import EtcdServer
from tests.ring.worlds import EtcdWorld, MemoryWorld


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory):
    """One etcd for all tests that leave it running."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), fast=True)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture
async def own_etcd(tmp_path):
    """An etcd that the test may kill."""
    server = EtcdServer(tmp_path, fast=True)
    await server.start()
    yield server
    if server.running:
        await server.stop()


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.real)])
def server(request):
    return None if request.param == "memory" else request.getfixturevalue("etcd_server")


@pytest.fixture
async def world(server):
    made = MemoryWorld() if server is None else EtcdWorld(server)
    yield made
    await made.close()


@pytest.fixture
def client(world):
    return world.client()
