import itertools

import pytest

from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from tests.support.etcd.proxy import Proxy

_fresh = itertools.count()


@pytest.fixture
def prefix():
    """A prefix without keys."""
    return f"/ring/{next(_fresh)}/"


@pytest.fixture
async def client(etcd_server):
    made = EtcdCoordination([etcd_server.endpoint])
    yield made
    await made.close()


@pytest.fixture
async def proxy(etcd_server):
    made = Proxy(etcd_server.endpoint)
    await made.start()
    yield made
    await made.cut()


@pytest.fixture
async def own_etcd(tmp_path):
    """An etcd that the test may kill."""
    server = EtcdServer(tmp_path, fast=True)
    await server.start()
    yield server
    if server.is_running:
        await server.stop()
