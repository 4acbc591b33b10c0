"""Meter records of a node: they add up to what happened, also if records are lost or duplicated."""

import random
from collections import Counter
from itertools import pairwise

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.records.meter_record import REFRESH, decode, numbers
from evenlane.engine.core.stats.wait_histogram import WAIT_BOUNDS
from evenlane.engine.telemetry.metering.publisher import MeterPublisher
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.meter_totals import rows, totals
from tests.support.node.gated import Clock, gated
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, topic
from tests.support.until import until
from tests.unit.telemetry.metering.publishers import meter, metered, published, tenants


async def test_record_describes_a_queue():
    """E11: backlog, age, counters, messages in flight, and quota. Queues that never had a message are left out."""
    clock = Clock()
    async with gated(clock, acme=topic(qps=50_000, weight=3.0)) as world:
        await world.put_many(5, priority="low")
        node = await world.node(world.handle, concurrency=2)
        meters = meter(node)
        await until(lambda: len(node.workers.running) == 2)
        clock.at += 4 * SECOND
        await meters.publish()
        [row] = rows(published(world))
        assert ("acme", 0, 2, 3, 2, False) == (
            row.project, row.group, row.band, row.backlog, row.in_flight, row.closed
        )  # fmt: skip
        assert (5, 0) == (row.counters["arrived"], row.counters["handled"])
        record = decode(published(world)[0])
        assert ["acme"] == record.projects
        assert [50_001_000] == numbers(record.topic("qps"))
        assert [4_000] == numbers(record.topic("weight"))
        assert [400] == numbers(record.queue("oldest"))
        world.gate.set()
        await until(lambda: len(world.handled) == 5)
        await meters.publish()
        last = rows(published(world))[-1]
        assert (0, 0, 5, 5) == (last.backlog, last.in_flight, last.counters["handled"], last.counters["attempts"])
        assert 5 == sum(totals(rows(published(world))).waits.values())
        await meters.close()


async def test_record_has_changed_queues_only_and_each_queue_regularly():
    """Each queue is in one of `REFRESH` records."""
    async with metered() as (world, _, meters):
        await world.put_many(3)
        await until(lambda: len(world.handled) == 3)
        for _ in range(REFRESH + 1):
            await meters.publish()
        counts = [decode(body).queues for body in published(world)]
        assert (REFRESH + 1, 1, 2) == (len(counts), counts[0], sum(counts))


async def test_all_buckets_of_a_changing_queue_are_published_regularly():
    """Otherwise a reader that starts in the middle would take an old wait for a new one."""
    async with metered() as (world, node, meters):
        for number in range(REFRESH + 1):
            await world.put_many(1)
            await until(lambda count=number + 1: len(world.handled) == count)
            if not number:
                [queue] = node.queues.all()
                node.times.add_up()
                queue.stats.waits[100] = 7
            await meters.publish()
        named = [100 in row.buckets for row in rows(published(world))]
        assert (REFRESH + 1, True, 2) == (len(named), named[0], sum(named))


async def test_empty_partitions_are_published_regularly():
    """Otherwise a backlog that a killed owner has published would stay for ever."""
    async with metered() as (world, _, meters):
        await world.put_many(1)
        await until(lambda: len(world.handled) == 1)
        world.server.refuse("meter.", Lost("cut off"))
        with pytest.raises(Lost):
            await meters.publish()
        world.server.accept("meter.")
        for _ in range(REFRESH + 1):
            await meters.publish()
        records = [decode(body) for body in published(world)]
        counts = Counter(number for record in records for number in numbers(record.lane("partition")))
        assert (CLUSTER_CONFIG.partitions, set(range(CLUSTER_CONFIG.partitions))) == (records[0].lanes, set(counts))
        assert {2, 3} >= set(counts.values())
        assert [0] == numbers(records[0].queue("lane"))
        assert {1} == {epoch for record in records for epoch in numbers(record.lane("epoch"))}
        assert not any(closed for record in records for closed in numbers(record.lane("closed")))


async def test_each_queue_has_its_turn_if_a_round_needs_many_records():
    async with metered(most_rows=1) as (world, _, meters):
        for group in range(4):
            await world.put_many(1, group=group)
        await until(lambda: len(world.handled) == 4)
        await meters.publish()
        while decode(published(world)[-1]).number < 3 * REFRESH:
            await meters.publish()
        seen = {group: [row.number for row in rows(published(world)) if row.group == group] for group in range(4)}
        for turns in seen.values():
            assert len(turns) >= 3
            assert max(later - previous for previous, later in pairwise(turns)) <= REFRESH + 8


async def test_longest_wait_of_a_lost_record_is_in_the_next_one():
    """It isn't cumulative."""
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
        first, after = (numbers(decode(body).queue("longest")) for body in published(world))
        assert [7_000] == first
        assert not any(after)  # it may be the queue's turn to be published again


async def test_lost_record_changes_no_total():
    """Rows that the store hasn't acknowledged are published again, and the numbers show that none is missing."""
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
        records = [decode(body) for body in published(world)]
        assert [(1, 0), (4, 1), (5, 4)] == [(each.number, each.after) for each in records]
        assert 10 == totals(rows(published(world))).ended["handled"]


async def test_order_duplicates_and_a_missing_record_change_no_total():
    """Any record but the last may be missing; only buckets that were not published again differ then."""
    async with metered() as (world, _, meters):
        for number in range(6):
            await world.put_many(5, priority=("high", "mid", "low")[number % 3])
            await until(lambda count=5 * number + 5: len(world.handled) == count)
            await meters.publish()
        await meters.close()
        bodies = published(world)
        chance = random.Random(1)
        for _ in range(20):
            some = [*bodies, *chance.choices(bodies, k=5)]
            chance.shuffle(some)
            assert totals(rows(bodies)) == totals(rows(some))
        kept = totals(rows(bodies))
        for gone in range(len(bodies) - 1):
            without = totals(rows(bodies[:gone] + bodies[gone + 1 :]))
            assert (kept.arrived, kept.ended) == (without.arrived, without.ended)


async def test_close_publishes_the_last_changes_and_the_end():
    async with metered() as (world, _, meters):
        await meters.publish()
        await world.put_many(4)
        await until(lambda: len(world.handled) == 4)
        await meters.close()
        [row] = rows(published(world))
        assert (4, True) == (row.counters["handled"], row.closed)


async def test_waiting_time_is_published_by_reason_and_length():
    """X8: seconds times messages by reason; the longest wait is in its bucket."""
    clock = Clock()
    async with gated(clock, acme=topic(state="paused")) as world:
        await world.put_many(4)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 4)
        known = tenants()
        sampler, meters = QueueSampler(node, known), meter(node, known)
        await sampler.round(now_ns())
        await sampler.round(now_ns() + 10 * SECOND)
        clock.at += 50 * SECOND
        node.clock.measure()
        world.gate.set()
        world.topics["acme"] = topic()
        node.on_topic_change("acme", world.topics["acme"])
        await until(lambda: len(world.handled) == 4)
        await meters.publish()
        record = decode(published(world)[-1])
        [paused] = numbers(record.queue("waited.paused"))
        assert 0 < paused
        [bucket] = totals(rows(published(world))).waits
        assert WAIT_BOUNDS[bucket - 1] < 50 * SECOND <= WAIT_BOUNDS[bucket]
        [longest] = numbers(record.queue("longest"))
        assert 50_000 <= longest < 51_000
        await meters.close()


async def test_many_queues_need_several_records():
    async with metered(most_rows=10, acme=topic(groups=25)) as (world, _, meters):
        for group in range(25):
            await world.put(group=group)
        await until(lambda: len(world.handled) == 25)
        await meters.publish()
        assert [10, 10, 5] == [decode(body).queues for body in published(world)]
        assert 25 == totals(rows(published(world))).ended["handled"]


async def test_interval_of_zero_disables_records():
    async with World() as world:
        node = await world.node()
        off = MeterPublisher(node, tenants(), 0.0, 8)
        off.open()
        await world.put_many(1)
        await until(lambda: len(world.handled) == 1)
        await off.close()
        assert [] == published(world)


async def test_records_continue_after_a_failure_of_the_store():
    """The streams are prepared again, and the next record has everything."""
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
        await until(lambda: bool(published(world)))
        await meters.close()
