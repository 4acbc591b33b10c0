"""Users of etcd whose permissions `evenlane permissions` prints."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from tests.support.permissions.guarded import ENV, GuardedServers

pytestmark = pytest.mark.real


@pytest.fixture
async def servers(tmp_path):
    made = GuardedServers(tmp_path)
    await made.start()
    yield made
    await made.stop()


async def test_commands_can_be_repeated(servers):
    """S1: after an upgrade they add what a role lacks. The user's password stays."""
    servers.make_again_in_etcd("producer-acme", "another password")
    etcd = connections.etcd(servers.settings("producer-acme"))
    try:
        await etcd.get(names.key(ENV, "accepted/acme"))
    finally:
        await etcd.close()
