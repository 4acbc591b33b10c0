"""The book of accepted topics: always what the leader has published, whatever else is written there."""

import asyncio

import pytest
from structlog.testing import capture_logs

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.errors import UnknownProject
from evenlane.quota.topics.topic import accept, complete, encode, parse_spec
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.memory.server import Backup
from evenlane.ring.coordination.ports import Put, Unavailable
from tests.support.topic_cases import BAD, LIMITS
from tests.support.until import until

PREFIX = "/evenlane/online/accepted/"


def accepted(qps, revision=1):
    return accept(complete(parse_spec(b'{"qps": %g}' % qps), LIMITS), revision, None)


@pytest.fixture
def coordination():
    return MemoryCoordination()


@pytest.fixture
async def book(coordination):
    made = TopicCache(coordination, "online")
    yield made
    await made.close()


def reported(book):
    """What is lost, each time that it is told."""
    lost = []
    book.on_lost = lambda now: lost.append(now.all())
    return lost


def overtake(coordination):
    """The revision is soon higher than before the restore."""
    for _ in range(9):
        coordination.store.txn([], [Put("/other", b"")], [])


def recorded(book):
    """(project, qps or None) of each change."""
    changes = []
    book.on_change.append(lambda project, now: changes.append((project, now and now.topic.qps)))
    return changes


async def put(coordination, project, qps):
    await coordination.put(PREFIX + project, encode(accepted(qps)))


async def test_all_are_known_after_the_start(coordination, book):
    await put(coordination, "a", 1)
    await put(coordination, "b", 2)
    changes = recorded(book)
    await book.start()
    assert accepted(1) == book.get("a")
    assert book.get("c") is None
    assert {"a", "b"} == set(book.all())
    assert changes == [("a", 1), ("b", 2)]


async def test_changes_are_told_in_order(coordination, book):
    """X4."""
    await put(coordination, "a", 1)
    await book.start()
    changes = recorded(book)
    await put(coordination, "a", 2)
    await put(coordination, "b", 3)
    await put(coordination, "b", 3)
    await coordination.delete(PREFIX + "a")
    await until(lambda: len(changes) == 3)
    assert changes == [("a", 2), ("b", 3), ("a", None)]
    assert {"b"} == set(book.all())


async def test_after_a_lost_connection_only_what_differs_is_told(coordination, book):
    for project in ("a", "b", "c"):
        await put(coordination, project, 1)
    await book.start()
    changes = recorded(book)
    coordination.cut()
    other = coordination.peer()
    await other.delete(PREFIX + "a")
    await put(other, "b", 2)
    coordination.heal()
    await until(lambda: len(changes) == 2)
    assert changes == [("a", None), ("b", 2)]


@pytest.mark.parametrize("raw", [BAD[0][0], BAD[11][0], b'{"qps": 5}', b'{"qps": NaN}'])
async def test_a_bad_value_is_passed_over_counted_and_told_once(coordination, book, raw):
    """Fault row 19: the last good one stays."""
    await put(coordination, "a", 1)
    await book.start()
    changes = recorded(book)
    await coordination.put(PREFIX + "a", raw)
    await coordination.put(PREFIX + "never good", encode(accepted(1)))
    await until(lambda: book.refused == 2)
    coordination.disconnect_watches()
    await put(coordination, "b", 2)
    await until(lambda: book.get("b"))
    assert accepted(1) == book.get("a")
    assert changes == [("b", 2)]
    assert book.refused == 2
    await put(coordination, "a", 5)
    await until(lambda: book.get("a").topic.qps == 5)


async def test_a_listener_that_fails_stops_nobody(coordination, book):
    def fail(project, now):
        raise ZeroDivisionError

    book.on_change.append(fail)
    changes = recorded(book)
    await book.start()
    await put(coordination, "a", 1)
    await put(coordination, "b", 2)
    await until(lambda: len(changes) == 2)


async def test_wait_for_a_topic(coordination, book):
    await book.start()
    waiting = asyncio.ensure_future(book.wait_for("a", 5.0))
    await asyncio.sleep(0)
    await put(coordination, "b", 1)
    await put(coordination, "a", 2)
    assert accepted(2) == await waiting
    assert accepted(2) == await book.wait_for("a", 0.0)
    assert book.on_change == []


async def test_waiting_in_vain_says_what_to_do(coordination, book):
    await book.start()
    with pytest.raises(UnknownProject, match="project 'a' has no topic in environment 'online', nor got one"):
        await book.wait_for("a", 0.01)
    assert book.on_change == []


async def test_a_start_without_etcd_fails_at_once(coordination, book):
    coordination.cut()
    with pytest.raises(Unavailable):
        await book.start()


async def test_the_contract_of_its_life(coordination, book):
    await book.close()
    await book.start()
    with pytest.raises(RuntimeError):
        await book.start()
    await book.close()
    await book.close()
    await put(coordination, "a", 1)
    assert book.get("a") is None


class TestLost:
    """F2: a topic that is gone because etcd has gone back isn't deleted."""

    async def test_it_stays_in_force_and_is_named_until_it_is_back(self, coordination, book):
        await put(coordination, "a", 1)
        await put(coordination, "b", 2)
        await book.start()
        changes, lost = recorded(book), reported(book)
        with capture_logs() as logs:
            coordination.restore(Backup())
            await until(lambda: lost)
        assert [("etcd has lost topics: what is known of them stays in force", 2, ["a", "b"])] == [
            (line["event"], line["projects"], line["some"]) for line in logs
        ]
        assert [{"a", "b"}] == lost
        assert ([], accepted(1)) == (changes, book.get("a"))
        await put(coordination, "a", 1)
        await put(coordination, "b", 7)
        await until(lambda: len(lost) == 3)
        assert [{"b"}, set()] == lost[1:]
        assert [("b", 7)] == changes

    async def test_a_listing_is_reported_once(self, coordination, book):
        """Those that it brings back, and those that it hasn't."""
        for project in "abcde":
            await put(coordination, project, 1)
        await book.start()
        lost = reported(book)
        coordination.restore(Backup())
        await until(lambda: lost)
        coordination.cut()
        for project in "abc":
            await put(coordination.peer(), project, 1)
        coordination.heal()
        await until(lambda: len(lost) > 1)
        assert [set("abcde"), set("de")] == lost

    async def test_what_the_backup_has_is_in_force(self, coordination, book):
        await put(coordination, "a", 1)
        backup = coordination.store.backup()
        await book.start()
        changes = recorded(book)
        await put(coordination, "a", 5)
        await put(coordination, "b", 2)
        await until(lambda: book.get("b"))
        coordination.restore(backup)
        await until(lambda: len(changes) == 3)
        assert [("a", 5), ("b", 2), ("a", 1)] == changes
        assert {"b"} == book.lost
        assert (None, book.get("b").topic, None) == tuple(book.lost_topic(project) for project in ("a", "b", "c"))

    async def test_an_etcd_that_has_overtaken_is_known_by_a_topic_that_is_older_than_before(self, coordination, book):
        await put(coordination, "a", 1)
        backup = coordination.store.backup()
        await book.start()
        changes, lost = recorded(book), reported(book)
        await put(coordination, "a", 5)
        await put(coordination, "b", 2)
        await until(lambda: book.get("b"))
        coordination.restore(backup)
        overtake(coordination)
        await until(lambda: lost)
        assert [("a", 5), ("b", 2), ("a", 1)] == changes
        assert ([{"b"}], accepted(2)) == (lost, book.get("b"))

    async def test_by_a_topic_that_was_deleted_since(self, coordination, book):
        await put(coordination, "a", 1)
        backup = coordination.store.backup()
        await book.start()
        changes, lost = recorded(book), reported(book)
        await coordination.delete(PREFIX + "a")
        await put(coordination, "b", 2)
        await until(lambda: book.get("b"))
        coordination.restore(backup)
        overtake(coordination)
        await until(lambda: lost)
        assert [("a", None), ("b", 2), ("a", 1)] == changes
        assert ([{"b"}], accepted(2)) == (lost, book.get("b"))

    async def test_one_that_has_overtaken_and_shows_nothing_older_is_not_noticed(self, coordination, book):
        """As the docs say: what was made since the backup looks deleted."""
        await put(coordination, "a", 1)
        backup = coordination.store.backup()
        await book.start()
        changes = recorded(book)
        await put(coordination, "b", 2)
        await until(lambda: book.get("b"))
        coordination.restore(backup)
        overtake(coordination)
        await until(lambda: len(changes) == 2)
        assert ([("b", 2), ("b", None)], frozenset()) == (changes, book.lost)

    async def test_one_that_nobody_wants_any_more_is_made_to_be_deleted(self, coordination, book):
        """It goes as any deleted topic does (docs/how-to/runbooks.md, EvenlaneTopicsLost)."""
        await put(coordination, "acme", 50)
        await book.start()
        coordination.restore(Backup())
        await until(lambda: book.lost)
        wishes = TopicClient(coordination, "online", ClusterConfig())
        acceptor = TopicController(coordination.peer(), "online", ClusterConfig(), "n1")
        await acceptor.start()
        with pytest.raises(UnknownProject):
            await wishes.delete("acme")
        await wishes.change("acme", {"qps": 1})
        await until(lambda: not book.lost)
        await wishes.delete("acme")
        await until(lambda: book.get("acme").deleted)
        await until(lambda: acceptor.emptied("acme", {0}))
        await until(lambda: book.get("acme") is None)
        assert frozenset() == book.lost
        await acceptor.close()

    async def test_one_that_was_deleted_while_nobody_watched_is_gone(self, coordination, book):
        await put(coordination, "a", 1)
        await book.start()
        watcher = recorded(book)
        coordination.cut()
        await coordination.peer().delete(PREFIX + "a")
        coordination.heal()
        await until(lambda: watcher)
        assert ([("a", None)], frozenset()) == (watcher, book.lost)
