"""The book of accepted topics: always what the leader has published, whatever else is written there."""

import asyncio

import pytest

from engine.errors import UnknownProject
from engine.topics import TopicBook
from quota.topic import accept, complete, encode, parse_wish
from ring.coordination import Unavailable
from ring.memory import MemoryCoordination
from tests.quota.cases import BAD, FACTS
from tests.wait import until

PREFIX = "/evenlane/online/accepted/"


def accepted(qps, revision=1):
    return accept(complete(parse_wish(b'{"qps": %g}' % qps), FACTS), revision, None)


@pytest.fixture
def coordination():
    return MemoryCoordination()


@pytest.fixture
async def book(coordination):
    made = TopicBook(coordination, "online")
    yield made
    await made.close()


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
