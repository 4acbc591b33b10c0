import pytest

from tests.support.etcd.harness import EtcdHarness, MemoryHarness


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.real)])
def server(request):
    return None if request.param == "memory" else request.getfixturevalue("etcd_server")


@pytest.fixture
async def world(server):
    made = MemoryHarness() if server is None else EtcdHarness(server)
    yield made
    await made.close()


@pytest.fixture
def client(world):
    return world.client()
