"""Subscriptions, and nodes of the release before, which know none and would remove what a subscription needs."""

import pytest

from tests.ledger.cli import evenlane, refusal
from tests.ledger.cluster import ProcessCluster
from tests.ledger.puts import one
from tests.ledger.released import NoHistory, release_before
from tests.support.streams import all_stored, delete_stream
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.source]


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    try:
        return release_before(tmp_path_factory.mktemp("before") / "code")
    except NoHistory as error:  # nothing else is a reason to skip
        pytest.skip(str(error))


async def test_creation_is_refused_while_a_node_of_the_release_before_lives(tmp_path, before):
    """K10, U1: the sentence names the node, and nothing is left of the creation. Once it is gone, it can be created."""
    async with ProcessCluster(tmp_path, lease_ttl=10) as cluster:
        old = await before.node(cluster, "old")
        [new] = await cluster.start("new")
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(old, new)
        said = await refusal(cluster, "subscriptions", "create", "audit")
        assert "node old of environment 'online' runs an older release, which would remove messages" in said
        assert "subscriptions" not in cluster.history.keys
        listed = (await evenlane(cluster, "subscriptions", "list"))["subscriptions"]
        assert [None] == [each["name"] for each in listed]
        assert 0 == await old.stop(), old.last_words()
        await cluster.owned_by(new)
        assert "active" == (await evenlane(cluster, "subscriptions", "create", "audit"))["state"]


@pytest.mark.parametrize("has_logs", [True, False], ids=["settle logs", "none"])
async def test_node_of_the_release_before_that_joins_later_removes_nothing(tmp_path, before, has_logs):
    """K10, L, U1: it can't take a partition over, so that what the subscription needs stays; also not if the partition
    has no settle log at the creation, as if nobody had owned it yet.
    """
    async with ProcessCluster(tmp_path, lease_ttl=10) as cluster:
        [new] = await cluster.start("new")
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(new)
        assert 0 == await new.stop(), new.last_words()
        if not has_logs:
            await delete_stream(cluster.servers.nats.url, "SETTLED_online")
        await evenlane(cluster, "subscriptions", "create", "audit")
        puts = [one(project, "kept") for project in cluster.projects]
        await cluster.put(await cluster.producer(), puts)
        old = await before.node(cluster, "old")
        await until(lambda: "version 2" in old.log.read_text(), 60, "it to say what it can't read")
        assert not set(cluster.ids("begin")) & {put.id for put in puts}
        [audit] = await cluster.start("audit", subscription="audit")
        await until(lambda: {put.id for put in puts} <= set(cluster.ids()), 60, "the subscription to get all")
        stored = await all_stored(cluster.servers.nats.url, "online", cluster.partitions)
        assert len(puts) == len(stored)
        await old.kill()
        [newer] = await cluster.start("newer")
        await cluster.owned_by(newer)
        assert [0, 0] == [await node.stop() for node in (audit, newer)]


async def test_quota_of_a_subscription_stays_in_effect_under_the_release_before(tmp_path, before):
    """K10, U1: a leader that doesn't know the field changes nothing of a topic that was accepted with it, and refuses
    a new spec with it, so that the last accepted topic stays. The next leader of this release accepts that spec. A
    command of the release before leaves the field out, since it begins from the topic in effect.
    """
    async with ProcessCluster(tmp_path, lease_ttl=10) as cluster:
        [new] = await cluster.start("new")
        await cluster.topics(*cluster.projects)
        await cluster.owned_by(new)
        await evenlane(cluster, "subscriptions", "create", "audit")
        first, second = cluster.projects[:2]
        own = "--subscription", "audit", "--qps", "20"
        await evenlane(cluster, "topics", "set", first, *own)
        assert 0 == await new.stop(), new.last_words()
        old = await before.node(cluster, "old")
        await until(lambda: cluster.history.leader == "old", 60, "the older node to lead")
        said = await refusal(cluster, "topics", "set", second, *own)
        assert "the leader has not accepted it" in said
        for project, quotas in ((first, {"audit": {"qps": 20.0}}), (second, None)):
            topic = await evenlane(cluster, "topics", "get", project)
            assert quotas == topic["in_force"].get("subscriptions")
        shown = await before.evenlane(cluster, "topics", "get", second)
        assert "subscriptions is not a field of a topic" in shown["problem"]
        await before.evenlane(cluster, "topics", "set", first, "--qps", "77")
        topic = await evenlane(cluster, "topics", "get", first)
        assert (True, 77.0) == (topic["accepted"], topic["wish"]["qps"])
        assert "subscriptions" not in {*topic["wish"], *topic["in_force"]}
        await old.kill()
        [newer] = await cluster.start("newer")
        await cluster.owned_by(newer)
        await until(lambda: quotas_of(cluster, second), 60, "the leader of this release to accept the spec")
        assert 0 == await newer.stop(), newer.last_words()


async def quotas_of(cluster, project):
    topic = await evenlane(cluster, "topics", "get", project)
    return topic["accepted"] and topic["in_force"].get("subscriptions")
