import pytest

from evenlane.engine.runtime.embedded.etcd import EtcdServer


@pytest.fixture
async def own_etcd(tmp_path):
    """An etcd that the test may kill."""
    server = EtcdServer(tmp_path, fast=True)
    await server.start()
    yield server
    if server.running:
        await server.stop()
