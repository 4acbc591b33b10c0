"""`max_backlog` at the producer: BacklogFull from what nodes tell, or what the store counts (K6, P8)."""

import asyncio
from time import monotonic

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Receipt
from evenlane.engine.core.wire.backlog_report import BacklogEntry, encoded, subject
from evenlane.engine.errors import BacklogFull, NotAcknowledged
from evenlane.engine.producer import backlog_limit as limits_module
from evenlane.engine.producer.put import Put
from evenlane.engine.producer.tuning import Tuning
from evenlane.ring.hashing import partition_of
from tests.support.until import until

NUMBER = partition_of("acme", 0, 1, 16)
LANE = LaneId("lanes", NUMBER)


@pytest.fixture
def world(world):
    world.topics.set("acme", '{"qps": 400, "max_backlog": 10, "spread": 1}')
    world.topics.set("free", '{"qps": 400}')
    return world


QUICK = Tuning(counted_s=0.0)
"""The store is asked as often as it is wanted, and nothing stays fresh."""


class Nodes:
    """The connection on which a producer hears of nodes, and what they say."""

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
        for body in encoded("n", 1, at, [BacklogEntry(NUMBER, "acme", count, lane, later)]):
            self.listener(b"", b"", b"", body)


def kinds(outcomes):
    return {kind: sum(type(each) is kind for each in outcomes) for kind in {type(each) for each in outcomes}}


async def test_one_producer_alone_never_goes_beyond_the_limit_and_no_node_is_needed(world):
    """K6, P8: many at once, of which none has its acknowledgement when the next is sent."""
    async with world.producer() as producer:
        outcomes = await producer.put_many(Put("acme", b"%d" % n) for n in range(50))
        assert {Receipt: 10, BacklogFull: 40} == kinds(outcomes)
        with pytest.raises(BacklogFull) as error:
            await producer.put("acme", b"x")
        expected = "the message for acme is not stored: 10 messages wait there, and its max_backlog is 10: put it again"
        assert str(error.value).startswith(expected)
        assert isinstance(await producer.put("free", b"x"), Receipt)
    assert 10 == len([m for m in world.stored() if ".acme." in m.subject])


async def test_what_others_have_put_before_is_counted_delayed_messages_too(world):
    """K1: a month ahead as well."""
    async with world.producer() as other:
        await other.put_many(Put("acme", b"", delay=30 * 86_400.0) for _ in range(4))
        await other.put_many(Put("acme", b"") for _ in range(3))
    async with world.producer() as producer:
        outcomes = await producer.put_many(Put("acme", b"", delay=60.0 * (n % 2)) for n in range(9))
    assert {Receipt: 3, BacklogFull: 6} == kinds(outcomes)


async def test_it_recovers_by_itself_when_messages_are_gone(world):
    async with world.producer(tuning=QUICK) as producer:
        await producer.put_many(Put("acme", b"") for _ in range(11))
        await world.store.purge(LANE, 6)

        async def taken():
            try:
                return await producer.put("acme", b"x")
            except BacklogFull:
                return None

        await until(taken, what="a put that is taken again")
    assert 6 == len(world.stored())


async def test_two_producers_see_each_other_by_the_stores_counts(world):
    """Each knows its own at once, and the other's when it counts again: never more than those are too many."""
    async with world.producer(tuning=QUICK) as one, world.producer(tuning=QUICK) as two:
        outcomes = await one.put_many([Put("acme", b"")]) + await two.put_many([Put("acme", b"")])
        for _ in range(12):
            for producer in (one, two):
                limits = producer._pipeline._limits[0]
                backlog, seen = limits._backlogs["acme"], len(world.stored())
                limits._ask(backlog, monotonic() + 1)  # as a put of a second later would
                limits._asked_at.clear()
                await until(lambda backlog=backlog, seen=seen: backlog.known == seen)
                outcomes += await producer.put_many([Put("acme", b"")])
        assert {Receipt: 10, BacklogFull: 16} == kinds(outcomes)


async def test_nodes_are_listened_to_only_when_a_topic_with_a_limit_is_put_to(world):
    nodes = Nodes(world)
    async with world.producer(counts=nodes) as producer:
        await producer.put("free", b"")
        assert not nodes.opened
        await producer.put("acme", b"")
        await until(lambda: nodes.listener)
    assert not nodes.opened


async def test_what_nodes_tell_decides_and_the_store_is_not_asked_meanwhile(world, monkeypatch):
    nodes, asked = Nodes(world), []
    held = world.store.held

    async def counting(lane, project):
        asked.append(lane)
        return await held(lane, project)

    monkeypatch.setattr(world.store, "held", counting)
    async with world.producer(counts=nodes) as producer:
        first = await producer.put("acme", b"")
        await until(lambda: nodes.listener)
        nodes.report(10, lane=first.sequence)
        before = len(asked)
        with pytest.raises(BacklogFull, match="10 messages wait there"):
            await producer.put("acme", b"")
        nodes.report(8, lane=first.sequence)
        assert {Receipt: 2, BacklogFull: 2} == kinds(await producer.put_many([Put("acme", b"")] * 4))
        nodes.report(9, lane=first.sequence + 2)
        assert {Receipt: 1, BacklogFull: 1} == kinds(await producer.put_many([Put("acme", b"")] * 2))
        assert before == len(asked)


async def test_nonsense_on_the_wire_changes_nothing(world):
    nodes = Nodes(world)
    async with world.producer(counts=nodes) as producer:
        await producer.put("acme", b"")
        await until(lambda: nodes.listener)
        nodes.listener(b"", b"", b"", b"\xff{")
        nodes.report(1_000, at=world.now + 3_600_000_000_000)
        assert isinstance(await producer.put("acme", b""), Receipt)


async def test_when_nodes_fall_silent_the_store_is_asked(world, monkeypatch):
    """No node runs any more, or the owner has changed."""
    nodes = Nodes(world)
    async with world.producer(counts=nodes) as producer:
        await producer.put("acme", b"")
        await until(lambda: nodes.listener)
        nodes.report(10, lane=1)
        with pytest.raises(BacklogFull):
            await producer.put("acme", b"")
        clock = limits_module.monotonic
        monkeypatch.setattr(limits_module, "monotonic", lambda: clock() + 20)
        assert isinstance(await producer.put("acme", b""), Receipt)


async def test_a_store_that_does_not_count_holds_no_put_up_for_long(world, monkeypatch):
    """It may be that it only doesn't count: what it does store isn't kept back."""

    async def silent(lane, project):
        await asyncio.Event().wait()

    monkeypatch.setattr(world.store, "held", silent)
    async with world.producer(tuning=Tuning(count_within_s=0.05)) as producer:
        assert isinstance(await producer.put("acme", b""), Receipt)


async def test_what_a_topic_may_hold_can_change_at_any_time(world):
    async with world.producer() as producer:
        assert {Receipt: 10, BacklogFull: 1} == kinds(await producer.put_many([Put("acme", b"")] * 11))
        world.topics.set("acme", '{"qps": 400, "max_backlog": 12, "spread": 1}')
        assert {Receipt: 2, BacklogFull: 1} == kinds(await producer.put_many([Put("acme", b"")] * 3))
        world.topics.set("acme", '{"qps": 400, "spread": 1}')
        assert {Receipt: 20} == kinds(await producer.put_many([Put("acme", b"")] * 20))


async def test_a_retry_is_never_refused_and_a_lost_put_frees_its_place(world):
    async with world.producer(timeout=3) as producer:
        world.server.delay_acks()
        putting = asyncio.create_task(producer.put_many([Put("acme", b"")] * 11))
        await until(lambda: len(world.stored()) == 10)
        world.server.disconnect()
        world.server.delay_acks(0)
        world.server.reconnect()
        assert {Receipt: 10, BacklogFull: 1} == kinds(await putting)
        assert 0 == producer._pipeline._limits[0]._backlogs["acme"].flying
        world.server.disconnect()
        world.topics.set("acme", '{"qps": 400, "max_backlog": 20, "spread": 1}')
        with pytest.raises(NotAcknowledged):
            await producer.put("acme", b"")
        assert 0 == producer._pipeline._limits[0]._backlogs["acme"].flying


async def test_a_put_cancelled_while_its_topic_is_counted_leaves_nothing_behind(world, monkeypatch):
    asked = asyncio.Event()

    async def silent(lane, project):
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(world.store, "held", silent)
    async with world.producer() as producer:
        putting = asyncio.create_task(producer.put("acme", b""))
        await asked.wait()
        putting.cancel()
        await asyncio.gather(putting, return_exceptions=True)
        assert (True, 0) == (
            producer._pipeline._sender.window.empty,
            producer._pipeline._limits[0]._backlogs["acme"].flying,
        )


async def test_a_put_that_finds_no_room_frees_its_place(world):
    async with world.producer(timeout=0.2, window_messages=1) as producer:
        world.server.delay_acks()
        first = asyncio.create_task(producer.put("acme", b""))
        await until(world.stored)
        second = asyncio.create_task(producer.put("acme", b""))
        backlog = producer._pipeline._limits[0]._backlogs["acme"]
        await until(lambda: backlog.flying == 2)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        assert 1 == backlog.flying
        world.server.delay_acks(0)
        await first
        assert (0, 1) == (backlog.flying, backlog.known)


async def test_many_topics_at_once_ask_the_store_a_few_questions_at_a_time(world, monkeypatch):
    """nats-server drops all questions once 10,000 of them wait."""
    asking = most = 0
    held = world.store.held

    async def counting(lane, project):
        nonlocal asking, most
        asking += 1
        most = max(most, asking)
        try:
            return await held(lane, project)
        finally:
            asking -= 1

    monkeypatch.setattr(world.store, "held", counting)
    for number in range(100):
        world.topics.set(f"t{number}", '{"qps": 400, "max_backlog": 5, "spread": 4}')
    async with world.producer() as producer:
        outcomes = await asyncio.gather(*(producer.put(f"t{number}", b"") for number in range(100)))
    assert {Receipt: 100} == kinds(outcomes)
    assert most <= 64
