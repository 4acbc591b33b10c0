"""Who paused a topic, and since when (X13)."""

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.control.topics.pause_authors import PauseAuthors
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import CoordinationError


class CountingClient(MemoryCoordination):
    """Counts its lists, which fail if `fails` is set."""

    lists, fails = 0, False

    async def list(self, prefix):
        self.lists += 1
        if self.fails:
            raise CoordinationError("no right to read")
        return await super().list(prefix)


async def paused(etcd, project, by):
    client = TopicClient(etcd, "online", ClusterConfig(), by)
    await client.change(project, {"qps": 100}, via="topics set")
    status = await client.change(project, {"state": "paused"}, via="topics pause")
    return status.revision


async def test_author_and_time_of_the_pause():
    """X13: from the history; it is read once for each revision."""
    etcd = MemoryCoordination()
    reader = CountingClient(etcd.store)
    authors = PauseAuthors(reader, "online")
    revisions = {"acme": await paused(etcd, "acme", "jo@laptop"), "bolt": await paused(etcd, "bolt", None)}
    found = await authors.read(revisions)
    assert found["acme"].startswith(" by jo@laptop since ")
    assert found["acme"].endswith(" UTC")
    assert found["bolt"].startswith(" since ")
    assert found == await authors.read(revisions)
    assert 2 == reader.lists
    await TopicClient(etcd, "online", ClusterConfig(), "kim").change("acme", {"state": "active"})
    again = await paused(etcd, "acme", "kim@desk")
    assert (await authors.read({"acme": again}))["acme"].startswith(" by kim@desk since ")


async def test_unreadable_history_costs_only_the_author():
    """S1: a role may be without the right to read histories."""
    etcd = MemoryCoordination()
    revision = await paused(etcd, "acme", "jo@laptop")
    reader = CountingClient(etcd.store)
    reader.fails = True
    assert {"acme": ""} == await PauseAuthors(reader, "online").read({"acme": revision})
    assert {} == await PauseAuthors(reader, "online").read({})
