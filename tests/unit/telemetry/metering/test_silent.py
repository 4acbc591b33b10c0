"""Rows of silent queues are packed once: what records say stays the same (issue 8)."""

import random
from collections import Counter

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.wire.meter_record import REFRESH, Block, decode, numbers
from evenlane.engine.telemetry.metering.publisher import MeterPublisher
from evenlane.engine.telemetry.metering.record_tables import shared_out
from evenlane.engine.telemetry.tenants.fairness import Round
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from tests.support.meter_totals import rows, totals
from tests.support.node.two import P, Two
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, change, topic
from tests.support.until import until

BANDS = ("high", "mid", "low")


def tenants():
    return TenantRegistry(CLUSTER_CONFIG.priorities, 10, CLUSTER_CONFIG.max_group_qps)


def opened(node, known=None, **tuning):
    """Records that are told by hand."""
    made = MeterPublisher(node, known or tenants(), 3600.0, 8, **tuning)
    made.open()
    return made


def bodies(world):
    return [each.body for each in world.server.messages(names.meter_stream("online"))]


async def put(world, project="acme", priority="mid"):
    """One message, and it is handled."""
    before = len(world.handled)
    await world.put(project=project, priority=priority)
    await until(lambda: len(world.handled) > before)


async def publish(meters, count=2 * REFRESH):
    """Records; after so many by default each silent queue was packed."""
    for _ in range(count):
        await meters.publish()


async def test_a_silent_queue_is_told_in_each_of_its_turns_with_all_that_it_had():
    """Issue 8.1: counters, buckets and reasons, however often it was told before."""
    async with World() as world:
        node = await world.node()
        meters = opened(node)
        await put(world)
        [queue] = node.queues.all()
        queue.stats.waited = {"quota": 7 * SECOND}
        await publish(meters, 4 * REFRESH + 1)
        text = [body for body in bodies(world) if decode(body).queues]
        assert 5 == len(text)
        assert 1 == len(
            {(row.backlog, row.in_flight, *row.counters.items(), *row.buckets.items()) for row in rows(text)}
        )
        assert [[70]] * 5 == [numbers(decode(body).queue("waited.quota")) for body in text]
        await meters.close()


async def test_a_silent_topic_is_told_as_it_is_now():
    """Issue 8.1: its rules and how fairly it was served may change while its queues are silent."""
    async with World() as world:
        node, known = await world.node(), tenants()
        meters = opened(node, known)
        await put(world)
        await publish(meters)
        change(world, node, topic(qps=300, weight=5.0))
        known.usage.begin(SECOND, 1.0)
        known.usage.note("acme", Round(1.0, 1, 1.0, 1, 5.0))
        await publish(meters, REFRESH)
        [now] = [record for body in bodies(world)[-REFRESH:] if (record := decode(body)).queues]
        columns = ("qps", "may_use", "weight")
        assert [[301_000], [301_000], [6_000]] == [numbers(now.topic(name)) for name in columns]
        assert [2_000] == numbers(now.topic("fairness"))
        await meters.close()


async def test_a_queue_that_wakes_is_told_at_once_and_its_neighbours_in_their_turn():
    """Issue 8.1: by chance, over many turns: nothing is told late, and nothing that isn't so."""
    chance = random.Random(7)
    projects = [f"p{number}" for number in range(12)]
    async with World(**{project: topic() for project in projects}) as world:
        meters = opened(await world.node())
        put_so_far = Counter()
        for _ in range(6 * REFRESH):
            if chance.random() < 0.3:
                woken = chance.choice(projects), chance.choice(BANDS)
                await put(world, *woken)
                put_so_far[woken] += 1
            await meters.publish()
            record = rows(bodies(world)[-1:])
            assert all(row.counters["handled"] == put_so_far[row.project, BANDS[row.band]] for row in record)
            ended = totals(rows(bodies(world))).ended
            assert put_so_far.total() == ended["handled"]
        last = {(row.project, BANDS[row.band]) for row in rows(bodies(world)[-REFRESH - 1 :])}
        assert set(put_so_far) == last
        await meters.close()


async def test_a_silent_queue_that_is_handed_over_has_its_last_word():
    """Issue 8.1: and is told no more, by whoever had it."""
    async with Two() as world:
        first = await world.bare("a")
        await first.take_over(range(CLUSTER_CONFIG.partitions), 1)
        meters = opened(first)
        await world.put_many(2, group=0)
        await until(lambda: len(world.handled) == 2)
        await publish(meters)
        await world.released(first, 1)
        await publish(meters)
        found = [row for row in rows(bodies(world)) if row.partition == P]
        assert [False, True] == [row.closed for row in found[-2:]]
        assert [2, 2] == [row.counters["handled"] for row in found[-2:]]
        assert 1 == sum(row.closed for row in found)
        await meters.close()


async def test_after_records_that_were_lost_all_silent_queues_come_in_their_turn():
    """Issue 8.1: those whose turn is missed come in the next record, with the ones that it is due to."""
    async with World(acme=topic(groups=24)) as world:
        meters = opened(await world.node(), most_rows=5)
        for group in range(24):
            await world.put(group=group)
        await until(lambda: len(world.handled) == 24)
        await publish(meters)
        world.server.refuse("meter.", Lost("cut off"))
        for _ in range(REFRESH):
            with pytest.raises(Lost):
                await meters.publish()
        world.server.accept("meter.")
        before = len(bodies(world))
        await meters.publish()
        found = [decode(body).queues for body in bodies(world)[before:]]
        assert (24, True) == (sum(found), max(found) <= 5)
        assert [*range(24)] == sorted(row.group for row in rows(bodies(world)[before:]))
        await meters.close()


def test_records_are_filled_whatever_is_ready():
    """Issue 8.1: never more in one than it may have, and nothing twice."""
    ready = [Block(queues=3), Block(queues=10)]
    assert [(0, 7, 3), (7, 7, 10), (7, 15, 0)] == [
        (start, end, block.queues) for start, end, block in shared_out(15, ready, 10)
    ]
    assert [(0, 0, 0)] == [(start, end, block.queues) for start, end, block in shared_out(0, [], 10)]
