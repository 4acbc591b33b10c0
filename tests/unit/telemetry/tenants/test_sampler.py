"""How a node's queues are looked at: in turn, in slices, without harm (X8)."""

import asyncio
from contextlib import asynccontextmanager

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Lost
from evenlane.engine.telemetry.tenants import sampler
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler, Tuning
from tests.support.node.gated import Clock, gated
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, change, topic
from tests.support.until import until


def tenants(most=10) -> TenantRegistry:
    return TenantRegistry(CLUSTER_CONFIG.priorities, most, CLUSTER_CONFIG.max_group_qps)


@asynccontextmanager
async def paused(clock=None):
    """Five messages wait, in two groups, and nothing of them is at hand."""
    async with gated(clock, acme=topic(state="paused")) as world:
        for group in (0, 0, 0, 2, 2):
            await world.put(group=group)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 5)
        yield node


async def test_a_round_finds_what_there_is():
    """X8: backlog, age, reason and what is being handled, of a node as it runs."""
    async with gated() as world:
        await world.put_many(5)
        node = await world.node(world.handle, concurrency=2)
        await until(lambda: len(node.workers.running) == 2)
        known = tenants()
        await QueueSampler(node, known).round(now_ns())
        mid = known.table["acme", 1]
        assert (3, 2, {"handlers_busy": 1}) == (mid.backlog, mid.in_flight, mid.reasons)
        assert 0 < mid.age_s < 60
        assert 5 == known.counted["acme", 1].arrived


async def test_the_age_of_what_isnt_at_hand_is_read_once():
    """X8: a paused topic's oldest message is no younger than another's; the store is asked when the head changes."""
    clock = Clock()
    async with paused(clock) as node:
        clock.at += 40 * SECOND
        known, asked = tenants(), []
        get = node.store.get
        node.store.get = lambda lane, sequences: (asked.append(sequences), get(lane, sequences))[1]
        looking = QueueSampler(node, known)
        for _ in range(3):
            await looking.round(now_ns())
            assert 40.0 == known.table["acme", 1].age_s
        assert 1 == len(asked)


async def test_a_store_that_is_away_costs_the_age_alone():
    async with paused() as node:

        async def lost(*_):
            raise Lost("no answer")

        node.store.get = lost
        known = tenants()
        await QueueSampler(node, known).round(now_ns())
        assert (5, None) == (known.table["acme", 1].backlog, known.table["acme", 1].age_s)


async def test_many_queues_are_looked_at_in_slices():
    """X8: 2,400 queues don't hold the loop."""
    async with gated(acme=topic(qps=40_000, groups=800)) as world:
        for group in range(800):
            for priority in CLUSTER_CONFIG.priorities:
                await world.put(group=group, priority=priority)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 2_399)
        looked, most = 0, 0
        known = tenants()
        look = known.look

        def counted(each):
            nonlocal looked
            looked += 1
            look(each)

        async def watch():
            nonlocal looked, most
            while True:
                most, looked = max(most, looked), 0
                await asyncio.sleep(0)

        known.look = counted
        watching = asyncio.create_task(watch())
        await QueueSampler(node, known, tuning=Tuning(pause_s=0)).round(now_ns())
        watching.cancel()
        assert 2_399 == sum(standing.backlog for standing in known.table.values())
        assert max(most, looked) <= 200


async def test_rounds_go_on_and_end_with_the_node():
    """X8: one that fails is logged; nothing is told of a node that is gone."""
    async with paused() as node:
        known = tenants()
        looking = QueueSampler(node, known, tuning=Tuning(pause_s=0.01, round_s=(0.01, 0.01)))
        await looking.close()  # it was never opened
        failures = iter([RuntimeError("a defect")])
        begin = known.begin

        def sometimes(now):
            if (failure := next(failures, None)) is not None:
                raise failure
            begin(now)

        known.begin = sometimes
        looking.open()
        await until(lambda: known.table and known.table["acme", 1].backlog == 5)
        await until(lambda: known.waits.lately("acme", now_ns())[0])
        await looking.close()
        assert ({}, {}) == (known.table, known.waits.lately("acme", now_ns())[0])
        assert all(seconds > 0 for seconds in known.waits.seconds.values())


async def test_a_takeover_is_no_arrival(monkeypatch):
    """X7: rates are measured anew when a partition has come or gone: its backlog arrives all at once."""
    async with paused() as node:
        go_round = rounds(node, monkeypatch)
        assert await go_round() is None
        assert await go_round() is not None
        (queue, *_) = node.queues.of("acme")
        node.owned.stop_partition(1 - queue.partition)
        assert await go_round() is None
        assert await go_round() is not None


def rounds(node, monkeypatch, tuning=Tuning()):  # noqa: B008 - frozen
    """Rounds 2 s apart, some seconds after the take-over; each returns acme's rates."""
    known, now = tenants(), now_ns() + 5 * SECOND
    looking = QueueSampler(node, known, tuning=tuning)
    monkeypatch.setattr(sampler, "now_ns", lambda: now)

    async def go_round():
        nonlocal now
        now += 2 * SECOND
        await looking.round(now)
        assert known.table["acme", 1].backlog
        return known.table["acme", 1].rates

    return go_round


async def test_a_small_backlog_that_is_still_being_read_is_no_arrival(monkeypatch):
    """X7, fault 1: what came in during the round in which its end came is nothing to measure from, either."""
    async with paused() as node:
        go_round = rounds(node, monkeypatch)
        (queue, *_) = node.queues.of("acme")
        lane = node.partitions[queue.partition].lane
        lane.position -= 1
        assert await go_round() is None
        queue.stats.arrived += 100
        assert await go_round() is None
        lane.position += 1
        queue.stats.arrived += 100  # after it was looked at, for all that is known
        assert await go_round() is None
        assert 0.0 == (await go_round()).arriving
        queue.stats.arrived += 8
        assert 2.0 == (await go_round()).arriving  # in 4 s


async def test_a_partition_that_goes_during_a_round_takes_its_counts_along(monkeypatch):
    """X7: in that very round already."""
    async with paused() as node:
        go_round = rounds(node, monkeypatch, Tuning(slice=1))
        await go_round()
        assert await go_round() is not None

        async def gone(_seconds):
            node.owned.stop_partition(1 - node.queues.of("acme")[0].partition)

        with monkeypatch.context() as patch:
            patch.setattr(sampler.asyncio, "sleep", gone)
            assert await go_round() is None


async def test_nothing_is_measured_right_after_a_take_over():
    """X7: what fell due meanwhile comes in all at once."""
    async with paused() as node:
        known = tenants()
        looking = QueueSampler(node, known)
        for _ in range(3):
            await looking.round(now_ns())
            assert (5, None) == (known.table["acme", 1].backlog, known.table["acme", 1].rates)


async def test_what_is_handed_over_during_a_round_is_not_looked_at(monkeypatch):
    """X8: its queues are laid down as if they were paused."""
    async with paused() as node:
        known = tenants()
        looking = QueueSampler(node, known, tuning=Tuning(slice=1))

        async def hand_off(_seconds):
            for number in [*node.partitions]:
                node.owned.stop_partition(number)

        monkeypatch.setattr(sampler.asyncio, "sleep", hand_off)
        await looking.round(now_ns())
        monkeypatch.undo()
        assert 3 == sum(standing.backlog for standing in known.table.values())


async def test_rounds_keep_no_time():
    """X8: a queue whose tokens come every so often is looked at sometimes before one and sometimes after it."""
    asked = []

    def uniform(least, most):
        asked.append((least, most))
        return least

    async with paused() as node:
        looking = QueueSampler(node, tenants(), uniform, Tuning(round_s=(0.01, 0.02)))
        looking.open()
        await until(lambda: len(asked) > 2)
        await looking.close()
    assert {(0.01, 0.02)} == set(asked)


async def test_a_silent_project_s_quota_follows_its_topic(monkeypatch):
    """X8, F9: a label at rest is asked for nothing, until its topic changes."""
    async with World(acme=topic(qps=100.0)) as world:
        node = await world.node()
        await world.put()
        await until(lambda: world.handled and not node.in_flight)
        known, now = tenants(), now_ns() + 5 * SECOND
        rounds = QueueSampler(node, known)
        monkeypatch.setattr(sampler, "now_ns", lambda: now)
        for _ in range(40):
            now += 2 * SECOND
            await rounds.round(now)
        assert {"acme": 100.0} == known.quotas
        asked, of = [], node.queues.of
        node.queues.of = lambda project: (asked.append(project), of(project))[1]
        for _ in range(10):
            now += 2 * SECOND
            await rounds.round(now)
        assert ([], {"acme": 100.0}) == (asked, known.quotas)
        change(world, node, topic(qps=7.0))
        await rounds.round(now + 2 * SECOND)
        assert {"acme": 7.0} == known.quotas
