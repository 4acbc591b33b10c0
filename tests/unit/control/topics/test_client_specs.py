"""Topic client for programs: whole specs, expected revisions, and pages of topics."""

import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.errors import InvalidTopic, RevisionConflict, TopicDraining
from evenlane.ring.coordination.memory.client import MemoryCoordination


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
def topic_client(etcd):
    return TopicClient(etcd, "online", ClusterConfig())


async def test_whole_spec_replaces_the_present_one_however_corrupted(etcd, topic_client):
    await topic_client.change("acme", {"qps": 100, "concurrency": 5, "backoff": {"base": 3.0}})
    status = await topic_client.change("acme", {"qps": 50, "backoff": {"cap": 60.0}}, whole=True)
    topic = status.in_effect.topic
    assert (True, 50.0, None, 1.0, 60.0) == (
        status.is_accepted, topic.qps, topic.concurrency, topic.backoff.base, topic.backoff.cap,
    )  # fmt: skip
    await etcd.put(names.key("online", "topics", "bolt"), b"{broken")
    assert (await topic_client.change("bolt", {"qps": 1}, whole=True)).is_accepted
    with pytest.raises(InvalidTopic, match="topic acme: qps is missing"):
        await topic_client.change("acme", {"weight": 1}, whole=True)


async def test_change_at_another_revision_or_of_a_deleted_topic_has_a_class(topic_client):
    status = await topic_client.change("acme", {"qps": 100})
    with pytest.raises(RevisionConflict, match=f"no longer at revision {status.revision + 1}"):
        await topic_client.change("acme", {"qps": 50}, if_revision=status.revision + 1)
    await topic_client.delete("acme")
    with pytest.raises(TopicDraining, match="topic acme was already deleted"):
        await topic_client.delete("acme")


async def test_pages_have_each_topic_once_and_end(topic_client):
    for number in range(5):
        await topic_client.change(f"p{number}", {"qps": 1})
    found, after, has_more = [], "", True
    while has_more:
        statuses, has_more = await topic_client.page(after, 2)
        found += [status.project for status in statuses]
        after = found[-1]
    assert [f"p{number}" for number in range(5)] == found
    assert ([], False) == await topic_client.page("z", 2)
