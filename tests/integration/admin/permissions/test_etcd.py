"""Users of etcd whose permissions `evenlane permissions` prints."""

import asyncio

import pytest

from evenlane import EvenlaneError, Producer, Topics
from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
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


async def test_environment_is_created_by_a_user_that_may(servers):
    """S1: the error of another user says that a node must come first."""
    first = (
        f"permission denied: environment '{ENV}' does not exist, and this user may not create it: start a node first"
    )
    with pytest.raises(EvenlaneError, match=first):
        async with Topics(settings=servers.settings("operator")) as topics:
            await topics.set("acme", qps=1)
    with pytest.raises(EvenlaneError, match=first):
        async with Producer(settings=servers.settings("producer-acme")):
            pass


async def test_producer_of_all_projects_needs_their_permissions(servers):
    """S1: the error of a user that may read some projects alone comes at once, and names the user and the setting."""
    etcd = connections.etcd(servers.settings("node"))
    await agree_cluster_config(etcd, ENV, {"partitions": 4})
    await etcd.close()
    refused = f"permission denied: the user producer-acme may not read all topics of environment '{ENV}': set projects"
    with pytest.raises(EvenlaneError, match=refused):
        async with asyncio.timeout(20), Producer(settings=servers.settings("producer-acme", projects=None)):
            pass
    refused = "the user producer-acme may not read the topics of acme, other: set projects to those of this user"
    with pytest.raises(EvenlaneError, match=refused):
        async with Producer(settings=servers.settings("producer-acme", projects=("acme", "other"))):
            pass
