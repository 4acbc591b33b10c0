"""A node's records for reports: what they say adds up to what happened, lost and doubled ones included (issue 8)."""

import random
from collections import Counter
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.stats.wait_histogram import WAIT_BOUNDS
from evenlane.engine.core.wire.meter_record import REFRESH, decode, numbers
from evenlane.engine.telemetry.metering.publisher import MeterPublisher
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.meter_totals import rows, totals
from tests.support.node.gated import Clock, gated
from tests.support.node.two import P, Two
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, topic
from tests.support.until import until


def tenants():
    return TenantRegistry(CLUSTER_CONFIG.priorities, 10, CLUSTER_CONFIG.max_group_qps)


def meter(node, known=None, **tuning):
    """One whose records are told by hand."""
    made = MeterPublisher(node, known or tenants(), 3600.0, 8, **tuning)
    made.open()
    return made


@asynccontextmanager
async def metered(most_rows=20_000, **topics):
    """A world with one node, and its records."""
    async with World(**topics) as world:
        node = await world.node()
        meters = meter(node, most_rows=most_rows)
        yield world, node, meters
        await meters.close()


def reported(world):
    return [each.body for each in world.server.messages(names.meter_stream("online"))]


async def test_what_a_record_says_of_a_queue():
    """Issue 8.1, E11: backlog, age, what came and went, what is in flight, quota; nothing of what never had any."""
    clock = Clock()
    async with gated(clock, acme=topic(qps=50_000, weight=3.0)) as world:
        await world.put_many(5, priority="low")
        node = await world.node(world.handle, concurrency=2)
        meters = meter(node)
        await until(lambda: len(node.workers.running) == 2)
        clock.at += 4 * SECOND
        await meters.publish()
        [row] = rows(reported(world))
        assert ("acme", 0, 2, 3, 2, False) == (
            row.project, row.group, row.band, row.backlog, row.in_flight, row.closed
        )  # fmt: skip
        assert (5, 0) == (row.counters["arrived"], row.counters["handled"])
        record = decode(reported(world)[0])
        assert ["acme"] == record.projects
        assert [50_001_000] == numbers(record.topic("qps"))
        assert [4_000] == numbers(record.topic("weight"))
        assert [400] == numbers(record.queue("oldest"))
        world.gate.set()
        await until(lambda: len(world.handled) == 5)
        await meters.publish()
        last = rows(reported(world))[-1]
        assert (0, 0, 5, 5) == (last.backlog, last.in_flight, last.counters["handled"], last.counters["attempts"])
        assert 5 == sum(totals(rows(reported(world))).waits.values())
        await meters.close()


async def test_only_what_changed_is_told_and_all_of_it_now_and_then():
    """Issue 8.1: a record without news has no queue; each queue comes again within so many records."""
    async with metered() as (world, _, meters):
        await world.put_many(3)
        await until(lambda: len(world.handled) == 3)
        for _ in range(REFRESH + 1):
            await meters.publish()
        counts = [decode(body).queues for body in reported(world)]
        assert (REFRESH + 1, 1, 2) == (len(counts), counts[0], sum(counts))


async def test_all_buckets_are_named_now_and_then_though_there_is_always_news():
    """Issue 8.1: else whoever reads from the middle on would take an old wait for a new one, where one more follows."""
    async with metered() as (world, node, meters):
        for number in range(REFRESH + 1):
            await world.put_many(1)
            await until(lambda count=number + 1: len(world.handled) == count)
            if not number:
                [queue] = node.queues.all()
                node.times.add_up()
                queue.stats.waits[100] = 7
            await meters.publish()
        named = [100 in row.buckets for row in rows(reported(world))]
        assert (REFRESH + 1, True, 2) == (len(named), named[0], sum(named))


async def test_whose_a_partition_is_is_told_though_nothing_waits_there():
    """Issue 8.1: once, and now and then; what a killed owner had told to wait there would stay for ever else."""
    async with metered() as (world, _, meters):
        await world.put_many(1)
        await until(lambda: len(world.handled) == 1)
        world.server.refuse("meter.", Lost("cut off"))
        with pytest.raises(Lost):
            await meters.publish()
        world.server.accept("meter.")
        for _ in range(REFRESH + 1):
            await meters.publish()
        records = [decode(body) for body in reported(world)]
        counts = Counter(number for record in records for number in numbers(record.lane("partition")))
        assert (CLUSTER_CONFIG.partitions, set(range(CLUSTER_CONFIG.partitions))) == (records[0].lanes, set(counts))
        assert {2, 3} >= set(counts.values())
        assert [0] == numbers(records[0].queue("lane"))
        assert {1} == {epoch for record in records for epoch in numbers(record.lane("epoch"))}
        assert not any(closed for record in records for closed in numbers(record.lane("closed")))


async def test_each_queue_has_its_turn_where_a_round_needs_many_records():
    """Issue 8.1: whatever numbers the records between two rounds have used up."""
    async with metered(most_rows=1) as (world, _, meters):
        for group in range(4):
            await world.put_many(1, group=group)
        await until(lambda: len(world.handled) == 4)
        await meters.publish()
        while decode(reported(world)[-1]).number < 3 * REFRESH:
            await meters.publish()
        seen = {group: [row.number for row in rows(reported(world)) if row.group == group] for group in range(4)}
        for turns in seen.values():
            assert len(turns) >= 3
            assert max(later - previous for previous, later in pairwise(turns)) <= REFRESH + 8


async def test_the_longest_wait_is_told_by_the_next_record_where_one_is_lost():
    """Issue 8.1: it isn't cumulative."""
    async with metered() as (world, node, meters):
        await world.put_many(1)
        await until(lambda: len(world.handled) == 1)
        node.times.add_up()
        [queue] = node.queues.all()
        queue.stats.longest = 7 * SECOND
        world.server.refuse("meter.", Lost("cut off"))
        with pytest.raises(Lost):
            await meters.publish()
        world.server.accept("meter.")
        await meters.publish()
        await meters.publish()
        text, after = (numbers(decode(body).queue("longest")) for body in reported(world))
        assert [7_000] == text
        assert not any(after)  # (it may be the queue's turn to be told anew)


async def test_a_record_that_is_lost_on_its_way_changes_no_total():
    """Issue 8.1: what the store hasn't acknowledged is told again; the numbers say that nothing is missing."""
    async with metered() as (world, _, meters):
        for number, failing in enumerate([False, True, True, False, False]):
            await world.put_many(2, group=number)
            await until(lambda count=2 * number + 2: len(world.handled) == count)
            world.server.accept("meter.")
            if failing:
                world.server.refuse("meter.", Lost("cut off"))
                with pytest.raises(Lost):
                    await meters.publish()
            else:
                await meters.publish()
        records = [decode(body) for body in reported(world)]
        assert [(1, 0), (4, 1), (5, 4)] == [(each.number, each.after) for each in records]
        assert 10 == totals(rows(reported(world))).ended["handled"]


async def test_the_order_of_records_and_their_number_change_no_total():
    """Issue 8.1: doubled, shuffled, and any one but the last missing: the same totals, but for buckets not yet told
    again.
    """
    async with metered() as (world, _, meters):
        for number in range(6):
            await world.put_many(5, priority=("high", "mid", "low")[number % 3])
            await until(lambda count=5 * number + 5: len(world.handled) == count)
            await meters.publish()
        await meters.close()
        bodies = reported(world)
        chance = random.Random(1)
        for _ in range(20):
            some = [*bodies, *chance.choices(bodies, k=5)]
            chance.shuffle(some)
            assert totals(rows(bodies)) == totals(rows(some))
        kept = totals(rows(bodies))
        for gone in range(len(bodies) - 1):
            without = totals(rows(bodies[:gone] + bodies[gone + 1 :]))
            assert (kept.arrived, kept.ended) == (without.arrived, without.ended)


async def test_a_hand_over_counts_nothing_twice():
    """Issue 8.1, E11: a backlog that moves, with a handler that runs on at its former owner."""
    async with Two() as world:
        first = await world.bare("a", concurrency=2)
        world.slow = {("a", "m1")}
        await first.take_over(range(CLUSTER_CONFIG.partitions), 1)
        old = meter(first)
        await world.put_many(3, group=0)
        await until(lambda: len(world.handled) == 2)
        world.topics["acme"] = topic(state="paused")
        first.topic_changed("acme", world.topics["acme"])
        await world.put_many(40, group=0)
        await until(lambda: first.backlog == 40)
        await old.publish()
        assert (43, 2, 41) == (
            (reported_now := totals(rows(reported(world)))).arrived, reported_now.ended["handled"], reported_now.waiting
        )  # fmt: skip
        record = await world.released(first, 1)
        await old.publish()
        second = await world.bare("b")
        await second.take_over([], 2)
        await second.owned.open(P, 2, [record])
        new = meter(second)
        second.topic_changed("acme", world.topics["acme"])
        await until(lambda: second.backlog == 40)
        await new.publish()
        now = totals(rows(reported(world)))
        assert (43, 2, 41, set()) == (now.arrived, now.ended["handled"], now.waiting, now.unclosed)
        world.gate.set()  # what ran on at the former owner ends there
        await until(lambda: len(world.handled) == 3)
        await old.publish()
        now = totals(rows(reported(world)))
        assert (43, 3, 40) == (now.arrived, now.ended["handled"], now.waiting)
        await old.close()
        await new.close()


async def test_a_partition_handed_over_while_a_record_is_on_its_way_has_its_last_word():
    """Issue 8.1: that record doesn't say that it is the end, nor what came after it; the next one does."""
    async with Two() as world:
        first = await world.bare("a")
        await first.take_over(range(CLUSTER_CONFIG.partitions), 1)
        meters, put = meter(first), first.store.put
        await world.put_many(2, group=0)
        await until(lambda: len(world.handled) == 2)

        async def handed_over_meanwhile(*record):
            first.store.put = put
            await world.put_many(1, group=0)
            await until(lambda: len(world.handled) == 3)
            await world.released(first, 1)
            return await put(*record)

        first.store.put = handed_over_meanwhile
        await meters.publish()
        await meters.publish()
        await meters.publish()
        assert [(2, False), (3, True)] == [(row.counters["handled"], row.closed) for row in rows(reported(world))]
        await meters.close()


async def test_whoever_goes_leaves_its_last_word():
    """Issue 8.1: what has happened since the last record is told as the term ends, and that it is the end."""
    async with metered() as (world, _, meters):
        await meters.publish()
        await world.put_many(4)
        await until(lambda: len(world.handled) == 4)
        await meters.close()
        [row] = rows(reported(world))
        assert (4, True) == (row.counters["handled"], row.closed)


async def test_waiting_is_told_by_reason_and_length():
    """Issue 8.1, X8: messages that wait say for what, times their number; the longest wait is in its bucket."""
    clock = Clock()
    async with gated(clock, acme=topic(state="paused")) as world:
        await world.put_many(4)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 4)
        known = tenants()
        looking, meters = QueueSampler(node, known), meter(node, known)
        await looking.round(now_ns())
        await looking.round(now_ns() + 10 * SECOND)
        clock.at += 50 * SECOND
        node.clock.measure()
        world.gate.set()
        world.topics["acme"] = topic()
        node.topic_changed("acme", world.topics["acme"])
        await until(lambda: len(world.handled) == 4)
        await meters.publish()
        record = decode(reported(world)[-1])
        [paused] = numbers(record.queue("waited.paused"))
        assert 0 < paused
        [bucket] = totals(rows(reported(world))).waits
        assert WAIT_BOUNDS[bucket - 1] < 50 * SECOND <= WAIT_BOUNDS[bucket]
        [longest] = numbers(record.queue("longest"))
        assert 50_000 <= longest < 51_000
        await meters.close()


async def test_very_many_queues_take_more_than_one_record():
    """Issue 8.1: each far below what the server takes, and all of them told."""
    async with metered(most_rows=10, acme=topic(groups=25)) as (world, _, meters):
        for group in range(25):
            await world.put(group=group)
        await until(lambda: len(world.handled) == 25)
        await meters.publish()
        assert [10, 10, 5] == [decode(body).queues for body in reported(world)]
        assert 25 == totals(rows(reported(world))).ended["handled"]


async def test_a_node_without_records():
    """Issue 8.1: `meter_interval` 0 turns them off."""
    async with World() as world:
        node = await world.node()
        off = MeterPublisher(node, tenants(), 0.0, 8)
        off.open()
        await world.put_many(1)
        await until(lambda: len(world.handled) == 1)
        await off.close()
        assert [] == reported(world)


async def test_records_go_on_after_a_store_that_refused():
    """Issue 8.1: the streams are looked after, and the next record says it all."""
    async with World() as world:
        node = await world.node()
        prepare, asked = node.store.prepare, []

        async def counted(lanes):
            asked.append(lanes)
            await prepare(lanes)

        node.store.prepare = counted
        world.server.refuse("meter.", Lost("no stream takes it"))
        meters = MeterPublisher(node, tenants(), 0.01, 8)
        meters.open()
        await until(lambda: len(asked) >= 2)
        world.server.accept("meter.")
        await until(lambda: bool(reported(world)))
        await meters.close()
