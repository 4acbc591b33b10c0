"""Topic cache: it has what the leader has published, whatever else is written under `accepted/`."""

import asyncio

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.errors import UnknownProject
from evenlane.quota.topics.subscription_quota import SubscriptionQuota
from evenlane.quota.topics.topic import accept, complete, encode, parse_spec
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.memory.server import Backup
from evenlane.ring.coordination.ports import PutKey, Unavailable
from tests.support.topic_cases import BAD, LIMITS
from tests.support.until import until

PREFIX = "/evenlane/online/accepted/"


def accepted(qps, revision=1):
    return accept(complete(parse_spec(b'{"qps": %g}' % qps), LIMITS), revision, None)


@pytest.fixture
def coordination():
    return MemoryCoordination()


@pytest.fixture
async def topic_cache(coordination):
    made = TopicCache(coordination, "online")
    yield made
    await made.close()


def record_lost(topic_cache):
    """Return a list that gets the lost topics at each report."""
    lost = []
    topic_cache.on_lost = lambda now: lost.append(now.all())
    return lost


def raise_revision(coordination):
    """Raise etcd's revision above that before the restore."""
    for _ in range(9):
        coordination.store.txn([], [PutKey("/other", b"")], [])


def record_changes(topic_cache):
    """Return a list that gets (project, qps or None) of each change."""
    changes = []
    topic_cache.on_change.append(lambda project, now: changes.append((project, now and now.topic.qps)))
    return changes


async def put(coordination, project, qps):
    await coordination.put(PREFIX + project, encode(accepted(qps)))


async def test_all_topics_are_known_after_the_start(coordination, topic_cache):
    await put(coordination, "a", 1)
    await put(coordination, "b", 2)
    changes = record_changes(topic_cache)
    await topic_cache.start()
    assert accepted(1) == topic_cache.get("a")
    assert topic_cache.get("c") is None
    assert {"a", "b"} == set(topic_cache.all())
    assert changes == [("a", 1), ("b", 2)]


async def test_changes_are_reported_in_order(coordination, topic_cache):
    """X4."""
    await put(coordination, "a", 1)
    await topic_cache.start()
    changes = record_changes(topic_cache)
    await put(coordination, "a", 2)
    await put(coordination, "b", 3)
    await put(coordination, "b", 3)
    await coordination.delete(PREFIX + "a")
    await until(lambda: len(changes) == 3)
    assert changes == [("a", 2), ("b", 3), ("a", None)]
    assert {"b"} == set(topic_cache.all())


async def test_only_differences_are_reported_after_a_lost_connection(coordination, topic_cache):
    for project in ("a", "b", "c"):
        await put(coordination, project, 1)
    await topic_cache.start()
    changes = record_changes(topic_cache)
    coordination.cut()
    other = coordination.peer()
    await other.delete(PREFIX + "a")
    await put(other, "b", 2)
    coordination.heal()
    await until(lambda: len(changes) == 2)
    assert changes == [("a", None), ("b", 2)]
    assert frozenset() == topic_cache.lost


@pytest.mark.parametrize("raw", [BAD[0][0], BAD[11][0], b'{"qps": 5}', b'{"qps": NaN}'])
async def test_invalid_value_is_skipped_and_counted_once(coordination, topic_cache, raw):
    """Fault row 19: the last valid topic stays in effect."""
    await put(coordination, "a", 1)
    await topic_cache.start()
    changes = record_changes(topic_cache)
    await coordination.put(PREFIX + "a", raw)
    await coordination.put(PREFIX + "never good", encode(accepted(1)))
    await until(lambda: topic_cache.refused == 2)
    coordination.disconnect_watches()
    await put(coordination, "b", 2)
    await until(lambda: topic_cache.get("b"))
    assert accepted(1) == topic_cache.get("a")
    assert changes == [("b", 2)]
    assert topic_cache.refused == 2
    await put(coordination, "a", 5)
    await until(lambda: topic_cache.get("a").topic.qps == 5)


async def test_failing_listener_stops_no_other(coordination, topic_cache):
    def fail(project, now):
        raise ZeroDivisionError

    topic_cache.on_change.append(fail)
    changes = record_changes(topic_cache)
    await topic_cache.start()
    await put(coordination, "a", 1)
    await put(coordination, "b", 2)
    await until(lambda: len(changes) == 2)


async def test_wait_returns_the_topic_when_it_appears(coordination, topic_cache):
    await topic_cache.start()
    waiting = asyncio.ensure_future(topic_cache.wait_for("a", 5.0))
    await asyncio.sleep(0)
    await put(coordination, "b", 1)
    await put(coordination, "a", 2)
    assert accepted(2) == await waiting
    assert accepted(2) == await topic_cache.wait_for("a", 0.0)
    assert topic_cache.on_change == []


async def test_wait_for_an_unknown_topic_raises(coordination, topic_cache):
    await topic_cache.start()
    with pytest.raises(UnknownProject, match="project 'a' has no topic in environment 'online', nor got one"):
        await topic_cache.wait_for("a", 0.01)
    assert topic_cache.on_change == []


async def test_start_without_etcd_raises(coordination, topic_cache):
    coordination.cut()
    with pytest.raises(Unavailable):
        await topic_cache.start()


async def test_cache_starts_once_and_closes_repeatedly(coordination, topic_cache):
    await topic_cache.close()
    await topic_cache.start()
    with pytest.raises(RuntimeError):
        await topic_cache.start()
    await topic_cache.close()
    await topic_cache.close()
    await put(coordination, "a", 1)
    assert topic_cache.get("a") is None


class TestLost:
    """F2: a topic that is missing because of an etcd rollback isn't deleted."""

    async def test_lost_topic_stays_in_effect_until_it_returns(self, coordination, topic_cache):
        await put(coordination, "a", 1)
        await put(coordination, "b", 2)
        await topic_cache.start()
        changes, lost = record_changes(topic_cache), record_lost(topic_cache)
        with capture_logs() as logs:
            coordination.restore(Backup())
            await until(lambda: lost)
        assert [("etcd has lost topics: what is known of them stays in force", 2, ["a", "b"])] == [
            (line["event"], line["projects"], line["some"]) for line in logs
        ]
        assert [{"a", "b"}] == lost
        assert ([], accepted(1)) == (changes, topic_cache.get("a"))
        await put(coordination, "a", 1)
        await put(coordination, "b", 7)
        await until(lambda: len(lost) == 3)
        assert [{"b"}, set()] == lost[1:]
        assert [("b", 7)] == changes

    async def test_listing_is_reported_once(self, coordination, topic_cache):
        """It returns some of the lost topics."""
        for project in "abcde":
            await put(coordination, project, 1)
        await topic_cache.start()
        lost = record_lost(topic_cache)
        coordination.restore(Backup())
        await until(lambda: lost)
        coordination.cut()
        for project in "abc":
            await put(coordination.peer(), project, 1)
        coordination.heal()
        await until(lambda: len(lost) > 1)
        assert [set("abcde"), set("de")] == lost

    async def test_topics_of_the_backup_take_effect(self, coordination, topic_cache):
        await put(coordination, "a", 1)
        backup = coordination.store.backup()
        await topic_cache.start()
        changes = record_changes(topic_cache)
        await put(coordination, "a", 5)
        await put(coordination, "b", 2)
        await until(lambda: topic_cache.get("b"))
        coordination.restore(backup)
        await until(lambda: len(changes) == 3)
        assert [("a", 5), ("b", 2), ("a", 1)] == changes
        assert {"b"} == topic_cache.lost
        assert (None, topic_cache.get("b").topic, None) == tuple(
            topic_cache.find_lost(project) for project in ("a", "b", "c")
        )

    async def test_older_topic_reveals_a_rollback_at_a_higher_revision(self, coordination, topic_cache):
        await put(coordination, "a", 1)
        backup = coordination.store.backup()
        await topic_cache.start()
        changes, lost = record_changes(topic_cache), record_lost(topic_cache)
        await put(coordination, "a", 5)
        await put(coordination, "b", 2)
        await until(lambda: topic_cache.get("b"))
        coordination.restore(backup)
        raise_revision(coordination)
        await until(lambda: lost)
        assert [("a", 5), ("b", 2), ("a", 1)] == changes
        assert ([{"b"}], accepted(2)) == (lost, topic_cache.get("b"))

    async def test_deleted_topic_reveals_a_rollback_at_a_higher_revision(self, coordination, topic_cache):
        await put(coordination, "a", 1)
        backup = coordination.store.backup()
        await topic_cache.start()
        changes, lost = record_changes(topic_cache), record_lost(topic_cache)
        await coordination.delete(PREFIX + "a")
        await put(coordination, "b", 2)
        await until(lambda: topic_cache.get("b"))
        coordination.restore(backup)
        raise_revision(coordination)
        await until(lambda: lost)
        assert [("a", None), ("b", 2), ("a", 1)] == changes
        assert ([{"b"}], accepted(2)) == (lost, topic_cache.get("b"))

    async def test_rollback_without_older_topics_is_not_noticed(self, coordination, topic_cache):
        """As the docs say: topics that are newer than the backup look deleted."""
        await put(coordination, "a", 1)
        backup = coordination.store.backup()
        await topic_cache.start()
        changes = record_changes(topic_cache)
        await put(coordination, "b", 2)
        await until(lambda: topic_cache.get("b"))
        coordination.restore(backup)
        raise_revision(coordination)
        await until(lambda: len(changes) == 2)
        assert ([("b", 2), ("b", None)], frozenset()) == (changes, topic_cache.lost)

    async def test_lost_topic_is_created_again_to_be_deleted(self, coordination, topic_cache):
        """It ends as any deleted topic does (docs/how-to/runbooks.md, EvenlaneTopicsLost)."""
        await put(coordination, "acme", 50)
        await topic_cache.start()
        coordination.restore(Backup())
        await until(lambda: topic_cache.lost)
        topic_client = TopicClient(coordination, "online", ClusterConfig())
        controller = TopicController(coordination.peer(), "online", ClusterConfig(), "n1")
        await controller.start()
        with pytest.raises(UnknownProject):
            await topic_client.delete("acme")
        await topic_client.change("acme", {"qps": 1})
        await until(lambda: not topic_cache.lost)
        await topic_client.delete("acme")
        await until(lambda: topic_cache.get("acme").deleted)
        await until(lambda: controller.remove_groups("acme", {0}))
        await until(lambda: topic_cache.get("acme") is None)
        assert frozenset() == topic_cache.lost
        await controller.close()


async def test_topics_have_the_quota_of_the_subscription(coordination):
    """K10: also after a change; one of another subscription's quota is none here."""
    topic_cache = TopicCache(coordination, "online", subscription="audit")
    changes = record_changes(topic_cache)
    published = accepted(100)

    async def write(**rates):
        quotas = {name: SubscriptionQuota(qps=qps) for name, qps in rates.items()}
        topic = replace(published.topic, subscriptions=quotas)
        await coordination.put(PREFIX + "a", encode(replace(published, topic=topic)))

    await write(audit=20.0, billing=5.0)
    await topic_cache.start()
    await write(audit=20.0, billing=6.0)
    await write(audit=30.0)
    await write(billing=7.0)
    await put(coordination, "b", 1)
    await until(lambda: topic_cache.get("b"))
    assert changes == [("a", 20), ("a", 30), ("a", 100), ("b", 1)]
    await topic_cache.close()
