"""Rows of silent queues are packed once, and records still have the same content."""

import random
from collections import Counter

import pytest

from evenlane.engine.core.ports import Lost
from evenlane.engine.core.records.meter_record import REFRESH, Block, decode, numbers
from evenlane.engine.telemetry.metering.record_tables import share_out
from evenlane.engine.telemetry.tenants.fairness import Round
from tests.support.meter_totals import rows, totals
from tests.support.node.two import P, Two
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, change, topic
from tests.support.until import until
from tests.unit.telemetry.metering.publishers import meter, published, tenants

BANDS = ("high", "mid", "low")


async def put(world, project="acme", priority="mid"):
    """Put a message and wait until it is handled."""
    before = len(world.handled)
    await world.put(project=project, priority=priority)
    await until(lambda: len(world.handled) > before)


async def publish(meters, count=2 * REFRESH):
    """Publish records; by default, enough to pack each silent queue."""
    for _ in range(count):
        await meters.publish()


async def test_silent_queue_is_published_completely_in_each_turn():
    """With counters, buckets and reasons."""
    async with World() as world:
        node = await world.node()
        meters = meter(node)
        await put(world)
        [queue] = node.queues.all()
        queue.stats.waited = {"quota": 7 * SECOND}
        await publish(meters, 4 * REFRESH + 1)
        found = [body for body in published(world) if decode(body).queues]
        assert 5 == len(found)
        assert 1 == len(
            {(row.backlog, row.in_flight, *row.counters.items(), *row.buckets.items()) for row in rows(found)}
        )
        assert [[70]] * 5 == [numbers(decode(body).queue("waited.quota")) for body in found]
        await meters.close()


async def test_topic_of_silent_queues_has_its_present_rules():
    """Its rules and its fairness may change while its queues are silent."""
    async with World() as world:
        node, known = await world.node(), tenants()
        meters = meter(node, known)
        await put(world)
        await publish(meters)
        change(world, node, topic(qps=300, weight=5.0))
        known.usage.begin(SECOND, 1.0)
        known.usage.note("acme", Round(1.0, 1, 1.0, 1, 5.0))
        await publish(meters, REFRESH)
        [now] = [record for body in published(world)[-REFRESH:] if (record := decode(body)).queues]
        columns = ("qps", "may_use", "weight")
        assert [[301_000], [301_000], [6_000]] == [numbers(now.topic(name)) for name in columns]
        assert [2_000] == numbers(now.topic("fairness"))
        await meters.close()


async def test_woken_queue_is_published_at_once_and_others_in_turn():
    """At random, over many turns: no row is late or wrong."""
    chance = random.Random(7)
    projects = [f"p{number}" for number in range(12)]
    async with World(**{project: topic() for project in projects}) as world:
        meters = meter(await world.node())
        put_so_far = Counter()
        for _ in range(6 * REFRESH):
            if chance.random() < 0.3:
                woken = chance.choice(projects), chance.choice(BANDS)
                await put(world, *woken)
                put_so_far[woken] += 1
            await meters.publish()
            record = rows(published(world)[-1:])
            assert all(row.counters["handled"] == put_so_far[row.project, BANDS[row.band]] for row in record)
            ended = totals(rows(published(world))).ended
            assert put_so_far.total() == ended["handled"]
        last = {(row.project, BANDS[row.band]) for row in rows(published(world)[-REFRESH - 1 :])}
        assert set(put_so_far) == last
        await meters.close()


async def test_silent_queue_of_a_released_partition_is_closed_once():
    async with Two() as world:
        first = await world.bare("a")
        await first.take_over(range(CLUSTER_CONFIG.partitions), 1)
        meters = meter(first)
        await world.put_many(2, group=0)
        await until(lambda: len(world.handled) == 2)
        await publish(meters)
        await world.released(first, 1)
        await publish(meters)
        found = [row for row in rows(published(world)) if row.partition == P]
        assert [False, True] == [row.closed for row in found[-2:]]
        assert [2, 2] == [row.counters["handled"] for row in found[-2:]]
        assert 1 == sum(row.closed for row in found)
        await meters.close()


async def test_silent_queues_of_lost_records_are_in_the_next_one():
    """With the queues whose turn it is."""
    async with World(acme=topic(groups=24)) as world:
        meters = meter(await world.node(), most_rows=5)
        for group in range(24):
            await world.put(group=group)
        await until(lambda: len(world.handled) == 24)
        await publish(meters)
        world.server.refuse("meter.", Lost("cut off"))
        for _ in range(REFRESH):
            with pytest.raises(Lost):
                await meters.publish()
        world.server.accept("meter.")
        before = len(published(world))
        await meters.publish()
        found = [decode(body).queues for body in published(world)[before:]]
        assert (24, True) == (sum(found), max(found) <= 5)
        assert [*range(24)] == sorted(row.group for row in rows(published(world)[before:]))
        await meters.close()


def test_rows_are_distributed_within_the_limit_of_a_record():
    ready = [Block(queues=3), Block(queues=10)]
    assert [(0, 7, 3), (7, 7, 10), (7, 15, 0)] == [
        (start, end, block.queues) for start, end, block in share_out(15, ready, 10)
    ]
    assert [(0, 0, 0)] == [(start, end, block.queues) for start, end, block in share_out(0, [], 10)]
