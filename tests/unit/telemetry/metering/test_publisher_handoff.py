"""Meter records of a partition that moves: its queues are counted once, and closed."""

from tests.support.meter_totals import rows, totals
from tests.support.node.two import P, Two
from tests.support.node.world import CLUSTER_CONFIG, topic
from tests.support.until import until
from tests.unit.telemetry.metering.publishers import meter, published


async def test_handoff_counts_nothing_twice():
    """E11: a backlog moves while a handler still runs at its previous owner."""
    async with Two() as world:
        first = await world.bare("a", concurrency=2)
        world.slow = {("a", "m1")}
        await first.take_over(range(CLUSTER_CONFIG.partitions), 1)
        old = meter(first)
        await world.put_many(3, group=0)
        await until(lambda: len(world.handled) == 2)
        world.topics["acme"] = topic(state="paused")
        first.on_topic_change("acme", world.topics["acme"])
        await world.put_many(40, group=0)
        await until(lambda: first.backlog == 40)
        await old.publish()
        now = totals(rows(published(world)))
        assert (43, 2, 41) == (now.arrived, now.ended["handled"], now.waiting)
        record = await world.released(first, 1)
        await old.publish()
        second = await world.bare("b")
        await second.take_over([], 2)
        await second.owned.open(P, 2, [record])
        new = meter(second)
        second.on_topic_change("acme", world.topics["acme"])
        await until(lambda: second.backlog == 40)
        await new.publish()
        now = totals(rows(published(world)))
        assert (43, 2, 41, set()) == (now.arrived, now.ended["handled"], now.waiting, now.unclosed)
        world.gate.set()  # the handler at the previous owner ends
        await until(lambda: len(world.handled) == 3)
        await old.publish()
        now = totals(rows(published(world)))
        assert (43, 3, 40) == (now.arrived, now.ended["handled"], now.waiting)
        await old.close()
        await new.close()


async def test_partition_released_during_a_put_is_closed_by_the_next_record():
    async with Two() as world:
        first = await world.bare("a")
        await first.take_over(range(CLUSTER_CONFIG.partitions), 1)
        meters, put = meter(first), first.store.put
        await world.put_many(2, group=0)
        await until(lambda: len(world.handled) == 2)

        async def released_meanwhile(*record):
            first.store.put = put
            await world.put_many(1, group=0)
            await until(lambda: len(world.handled) == 3)
            await world.released(first, 1)
            return await put(*record)

        first.store.put = released_meanwhile
        await meters.publish()
        await meters.publish()
        await meters.publish()
        assert [(2, False), (3, True)] == [(row.counters["handled"], row.closed) for row in rows(published(world))]
        await meters.close()
