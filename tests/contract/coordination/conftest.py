import pytest

from tests.support.etcd.worlds import EtcdWorld, MemoryWorld


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
