"""`max_backlog` at the producer: BacklogFull by the nodes' reports, or by the store's counts (K6, P8)."""

import asyncio

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Receipt
from evenlane.engine.core.records.backlog_report import BacklogEntry, encode_report, subject
from evenlane.engine.errors import BacklogFull, NotAcknowledged
from evenlane.engine.producer.put import Put
from evenlane.engine.producer.tuning import ProducerTuning
from evenlane.ring.hashing import partition_of
from tests.support.until import until

NUMBER = partition_of("acme", 0, 1, 16, "hashed")
LANE = LaneId("lanes", NUMBER)
QUICK = ProducerTuning(counted_s=0.0)
"""Counts are never fresh: each put asks the store."""


@pytest.fixture
def world(world):
    limit(world, 10)
    world.topics.set("free", '{"qps": 400}')
    return world


def limit(world, messages):
    world.topics.set("acme", f'{{"qps": 400, "max_backlog": {messages}, "spread": 1}}')


class Nodes:
    """The connection on which a producer receives the nodes' reports, and the reports."""

    def __init__(self, world):
        self.world, self.opened, self.listener = world, False, None

    async def open(self):
        self.opened = True

    def listen(self, to, on_message):
        assert subject("online", "*") == to
        self.listener = on_message

    async def close(self):
        self.opened = False

    def report(self, count, lane=0, later=0, at=None):
        at = self.world.now if at is None else at
        for body in encode_report("n", 1, at, [BacklogEntry(NUMBER, "acme", count, lane, later)]):
            self.listener(b"", b"", b"", body)


def kinds(outcomes):
    return {kind: sum(type(each) is kind for each in outcomes) for kind in {type(each) for each in outcomes}}


async def is_taken(producer):
    try:
        return bool(await producer.put("acme", b"x"))
    except BacklogFull:
        return False


async def is_refused(producer):
    return not await is_taken(producer)


async def test_single_producer_never_exceeds_limit_without_nodes(world):
    """K6, P8: many puts at once, none of which is acknowledged when the next is sent."""
    async with world.producer() as producer:
        outcomes = await producer.put_many(Put("acme", b"%d" % n) for n in range(50))
        assert {Receipt: 10, BacklogFull: 40} == kinds(outcomes)
        with pytest.raises(BacklogFull) as error:
            await producer.put("acme", b"x")
        expected = "the message for acme is not stored: 10 messages wait there, and its max_backlog is 10: put it again"
        assert str(error.value).startswith(expected)
        assert isinstance(await producer.put("free", b"x"), Receipt)
    assert 10 == len([m for m in world.stored() if ".acme." in m.subject])


async def test_earlier_and_delayed_messages_of_others_count(world):
    """K1: messages that are due in a month, too."""
    async with world.producer() as other:
        await other.put_many(Put("acme", b"", delay=30 * 86_400.0) for _ in range(4))
        await other.put_many(Put("acme", b"") for _ in range(3))
    async with world.producer() as producer:
        outcomes = await producer.put_many(Put("acme", b"", delay=60.0 * (n % 2)) for n in range(9))
    assert {Receipt: 3, BacklogFull: 6} == kinds(outcomes)


async def test_puts_are_taken_again_after_messages_are_removed(world):
    async with world.producer(tuning=QUICK) as producer:
        await producer.put_many(Put("acme", b"") for _ in range(11))
        await world.store.purge(LANE, 6)
        await until(lambda: is_taken(producer), what="a put that is taken again")
    assert 6 == len(world.stored())


async def test_two_producers_exceed_limit_only_until_next_count(world):
    """K6: each producer counts its own puts at once, and those of the other with the store's next count."""
    async with world.producer(tuning=QUICK) as one, world.producer(tuning=QUICK) as two:
        await two.put("acme", b"")
        assert {Receipt: 9, BacklogFull: 1} == kinds(await one.put_many([Put("acme", b"")] * 10))
        await until(lambda: is_refused(two), what="a count that includes the other's puts")
    assert 10 <= len(world.stored()) <= 12


async def test_producer_listens_to_nodes_from_first_put_with_limit(world):
    nodes = Nodes(world)
    async with world.producer(counts=nodes) as producer:
        await producer.put("free", b"")
        assert not nodes.opened
        await producer.put("acme", b"")
        await until(lambda: nodes.listener)
    assert not nodes.opened


async def test_node_reports_decide_and_store_is_not_asked(world):
    nodes = Nodes(world)
    async with world.producer(counts=nodes) as producer:
        first = await producer.put("acme", b"")
        await until(lambda: nodes.listener)
        nodes.report(10, lane=first.sequence)
        before = len(world.store.counted)
        with pytest.raises(BacklogFull, match="10 messages wait there"):
            await producer.put("acme", b"")
        nodes.report(8, lane=first.sequence)
        assert {Receipt: 2, BacklogFull: 2} == kinds(await producer.put_many([Put("acme", b"")] * 4))
        nodes.report(9, lane=first.sequence + 2)
        assert {Receipt: 1, BacklogFull: 1} == kinds(await producer.put_many([Put("acme", b"")] * 2))
        assert before == len(world.store.counted)


async def test_malformed_and_future_reports_are_ignored(world):
    nodes = Nodes(world)
    async with world.producer(counts=nodes) as producer:
        await producer.put("acme", b"")
        await until(lambda: nodes.listener)
        nodes.listener(b"", b"", b"", b"\xff{")
        nodes.report(1_000, at=world.now + 3_600_000_000_000)
        assert isinstance(await producer.put("acme", b""), Receipt)


async def test_store_is_asked_once_nodes_stop_reporting(world):
    """No node runs any more, or the partition has another owner."""
    nodes = Nodes(world)
    async with world.producer(counts=nodes, tuning=ProducerTuning(counted_s=0.0, reported_within_s=0.1)) as producer:
        await producer.put("acme", b"")
        await until(lambda: nodes.listener)

        async def report_is_used():
            nodes.report(10, lane=1)
            return await is_refused(producer)

        await until(report_is_used)
        await until(lambda: is_taken(producer), what="a put by the store's count")


async def test_put_passes_when_store_does_not_count(world):
    """The store may still store messages."""
    world.store.counts_come.clear()
    async with world.producer(tuning=ProducerTuning(count_within_s=0.05)) as producer:
        assert isinstance(await producer.put("acme", b""), Receipt)


async def test_changed_limit_applies_to_next_put(world):
    async with world.producer() as producer:
        assert {Receipt: 10, BacklogFull: 1} == kinds(await producer.put_many([Put("acme", b"")] * 11))
        limit(world, 12)
        assert {Receipt: 2, BacklogFull: 1} == kinds(await producer.put_many([Put("acme", b"")] * 3))
        world.topics.set("acme", '{"qps": 400, "spread": 1}')
        assert {Receipt: 20} == kinds(await producer.put_many([Put("acme", b"")] * 20))


async def test_retry_is_never_refused_and_counts_once(world):
    async with world.producer() as producer:
        world.server.delay_acks()
        putting = asyncio.create_task(producer.put_many([Put("acme", b"")] * 11))
        await until(lambda: len(world.stored()) == 10)
        world.server.disconnect()
        world.server.delay_acks(0)
        world.server.reconnect()
        assert {Receipt: 10, BacklogFull: 1} == kinds(await putting)
        limit(world, 12)
        assert {Receipt: 2, BacklogFull: 1} == kinds(await producer.put_many([Put("acme", b"")] * 3))


async def test_put_without_acknowledgement_frees_its_place(world):
    async with world.producer(timeout=1) as producer:
        await producer.put("acme", b"")
        world.server.disconnect()
        with pytest.raises(NotAcknowledged):
            await producer.put("acme", b"")
        world.server.reconnect()
        assert {Receipt: 9, BacklogFull: 1} == kinds(await producer.put_many([Put("acme", b"")] * 10))


async def test_put_cancelled_during_count_leaves_nothing_behind(world):
    world.store.counts_come.clear()
    async with world.producer(window_messages=1) as producer:
        putting = asyncio.create_task(producer.put("acme", b""))
        await until(lambda: world.store.counted)
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        world.store.counts_come.set()
        assert {Receipt: 10, BacklogFull: 1} == kinds(await producer.put_many([Put("acme", b"")] * 11))


async def test_put_cancelled_while_window_is_full_frees_its_place(world):
    limit(world, 2)
    async with world.producer(window_messages=1) as producer:
        world.server.delay_acks()
        first = asyncio.create_task(producer.put("acme", b""))
        await until(world.stored)
        second = asyncio.create_task(producer.put("acme", b""))
        await asyncio.sleep(0)
        with pytest.raises(BacklogFull):
            await producer.put("acme", b"")
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        world.server.delay_acks(0)
        await first
        assert {Receipt: 1, BacklogFull: 1} == kinds(await producer.put_many([Put("acme", b"")] * 2))


async def test_concurrent_counts_of_many_topics_are_bounded(world):
    """nats-server drops all requests once 10,000 of them wait."""
    for number in range(100):
        world.topics.set(f"t{number}", '{"qps": 400, "max_backlog": 5, "spread": 4}')
    async with world.producer() as producer:
        outcomes = await asyncio.gather(*(producer.put(f"t{number}", b"") for number in range(100)))
    assert {Receipt: 100} == kinds(outcomes)
    assert 0 < world.store.most_counting <= 64
