"""Queue sampler: it examines a node's queues in slices, at a limited rate (X8)."""

import asyncio
from contextlib import asynccontextmanager

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Lost
from evenlane.engine.telemetry.tenants import sampler
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler, SamplerTuning
from tests.support.node.gated import Clock, Later, gated
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, change, topic
from tests.support.until import until


def tenants(most=10) -> TenantRegistry:
    return TenantRegistry(CLUSTER_CONFIG.priorities, most, CLUSTER_CONFIG.max_group_qps)


class Watched:
    """Wraps a node or its queues, and records in `asked` the projects whose queues are read."""

    def __init__(self, inner, asked=None):
        self._inner, self.asked = inner, [] if asked is None else asked

    def __getattr__(self, name):
        return getattr(self._inner, name)

    @property
    def queues(self):
        return Watched(self._inner.queues, self.asked)

    def of_project(self, project):
        self.asked.append(project)
        return self._inner.of_project(project)


@asynccontextmanager
async def paused(clock=None):
    """A node on which five messages wait in two groups, none of them loaded."""
    async with gated(clock, acme=topic(state="paused")) as world:
        for group in (0, 0, 0, 2, 2):
            await world.put(group=group)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 5)
        yield node


async def test_round_finds_backlog_age_reason_and_messages_in_flight():
    """X8."""
    async with gated() as world:
        await world.put_many(5)
        node = await world.node(world.handle, concurrency=2)
        await until(lambda: len(node.workers.running) == 2)
        known = tenants()
        await QueueSampler(Later(node), known).round(now_ns())
        mid = known.table["acme", 1]
        assert (3, 2, {"handlers_busy": 1}) == (mid.backlog, mid.in_flight, mid.reasons)
        assert 1 < mid.age_s < 60
        assert 5 == known.counted["acme", 1].arrived


async def test_age_of_an_unloaded_head_is_read_once():
    """X8: the store is asked again when the head changes."""
    clock = Clock()
    async with paused(clock) as node:
        clock.at += 40 * SECOND
        known, asked = tenants(), []
        get = node.store.get
        node.store.get = lambda lane, sequences: (asked.append(sequences), get(lane, sequences))[1]
        queue_sampler = QueueSampler(node, known)
        for _ in range(3):
            await queue_sampler.round(now_ns())
            assert 40.0 == known.table["acme", 1].age_s
        assert 1 == len(asked)


async def test_only_the_age_is_missing_without_the_store():
    async with paused() as node:

        async def lost(*_):
            raise Lost("no answer")

        node.store.get = lost
        known = tenants()
        await QueueSampler(node, known).round(now_ns())
        assert (5, None) == (known.table["acme", 1].backlog, known.table["acme", 1].age_s)


async def test_many_queues_are_examined_in_slices():
    """X8: 2,400 queues don't block the loop."""
    async with gated(acme=topic(qps=40_000, groups=800)) as world:
        for group in range(800):
            for priority in CLUSTER_CONFIG.priorities:
                await world.put(group=group, priority=priority)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 2_399)
        examined, most = 0, 0
        known = tenants()
        look = known.look

        def counted(each):
            nonlocal examined
            examined += 1
            look(each)

        async def watch():
            nonlocal examined, most
            while True:
                most, examined = max(most, examined), 0
                await asyncio.sleep(0)

        known.look = counted
        watching = asyncio.create_task(watch())
        await QueueSampler(node, known, tuning=SamplerTuning(pause_s=0)).round(now_ns())
        watching.cancel()
        assert 2_399 == sum(each.backlog for each in known.table.values())
        assert max(most, examined) <= 200


async def test_rounds_continue_after_a_failure_until_close():
    """X8: a closed sampler leaves no figures of its node."""
    async with paused() as node:
        known = tenants()
        queue_sampler = QueueSampler(node, known, tuning=SamplerTuning(pause_s=0.01, round_s=(0.01, 0.01)))
        await queue_sampler.close()  # it was never opened
        failures = iter([RuntimeError("a defect")])
        begin = known.begin

        def sometimes(now):
            if (failure := next(failures, None)) is not None:
                raise failure
            begin(now)

        known.begin = sometimes
        queue_sampler.open()
        await until(lambda: known.table and known.table["acme", 1].backlog == 5)
        await until(lambda: known.waits.lately("acme", now_ns())[0])
        await queue_sampler.close()
        assert ({}, {}) == (known.table, known.waits.lately("acme", now_ns())[0])
        assert all(seconds > 0 for seconds in known.waits.seconds.values())


async def test_change_of_partitions_restarts_the_rates(monkeypatch):
    """X7: the backlog of a takeover is no arrival."""
    async with paused() as node:
        go_round = rounds(node, monkeypatch)
        assert await go_round() is None
        assert await go_round() is not None
        (queue, *_) = node.queues.of_project("acme")
        node.owned.stop_partition(1 - queue.partition)
        assert await go_round() is None
        assert await go_round() is not None


def rounds(node, monkeypatch, tuning=SamplerTuning()):  # noqa: B008 - frozen
    """Return a function that goes a round, 2 s after the last one, and returns acme's rates. The first round is some
    seconds after the takeover.
    """
    known, now = tenants(), now_ns() + 5 * SECOND
    queue_sampler = QueueSampler(node, known, tuning=tuning)
    monkeypatch.setattr(sampler, "now_ns", lambda: now)

    async def go_round():
        nonlocal now
        now += 2 * SECOND
        await queue_sampler.round(now)
        assert known.table["acme", 1].backlog
        return known.table["acme", 1].rates

    return go_round


async def test_backlog_that_is_still_read_is_no_arrival(monkeypatch):
    """X7, fault 1: nor are messages of the round in which its end is read."""
    async with paused() as node:
        go_round = rounds(node, monkeypatch)
        (queue, *_) = node.queues.of_project("acme")
        lane = node.partitions[queue.partition].lane
        lane.position -= 1
        assert await go_round() is None
        queue.stats.arrived += 100
        assert await go_round() is None
        lane.position += 1
        queue.stats.arrived += 100  # perhaps after it was examined
        assert await go_round() is None
        assert 0.0 == (await go_round()).arriving
        queue.stats.arrived += 8
        assert 2.0 == (await go_round()).arriving  # in 4 s


async def test_partition_lost_during_a_round_restarts_the_rates(monkeypatch):
    """X7: in that round already."""
    async with paused() as node:
        go_round = rounds(node, monkeypatch, SamplerTuning(slice=1, pause_s=0))
        await go_round()
        assert await go_round() is not None
        going = asyncio.create_task(go_round())
        await asyncio.sleep(0)  # the first queue is examined
        node.owned.stop_partition(1 - node.queues.of_project("acme")[0].partition)
        assert await going is None


async def test_rates_are_unknown_right_after_a_takeover():
    """X7: messages that became due meanwhile arrive all at once."""
    async with paused() as node:
        known = tenants()
        queue_sampler = QueueSampler(node, known)
        for _ in range(3):
            await queue_sampler.round(now_ns())
            assert (5, None) == (known.table["acme", 1].backlog, known.table["acme", 1].rates)


async def test_partitions_released_during_a_round_are_not_examined():
    """X8: their queues would look as if they were paused."""
    async with paused() as node:
        known = tenants()
        going = asyncio.create_task(QueueSampler(node, known, tuning=SamplerTuning(slice=1, pause_s=0)).round(now_ns()))
        await asyncio.sleep(0)  # the first queue is examined
        for number in [*node.partitions]:
            node.owned.stop_partition(number)
        await going
        assert 3 == sum(each.backlog for each in known.table.values())


async def test_intervals_of_rounds_are_random():
    """X8: otherwise all samples of a queue would be at the same phase of its tokens."""
    asked = []

    def uniform(least, most):
        asked.append((least, most))
        return least

    async with paused() as node:
        queue_sampler = QueueSampler(node, tenants(), uniform, SamplerTuning(round_s=(0.01, 0.02)))
        queue_sampler.open()
        await until(lambda: len(asked) > 2)
        await queue_sampler.close()
    assert {(0.01, 0.02)} == set(asked)


async def test_quota_of_a_silent_project_follows_its_topic(monkeypatch):
    """X8, F9: a label at rest costs nothing until its topic changes."""
    async with World(acme=topic(qps=100.0)) as world:
        node = await world.node()
        await world.put()
        await until(lambda: world.handled and not node.in_flight)
        known, now = tenants(), now_ns() + 5 * SECOND
        watched = Watched(node)
        queue_sampler = QueueSampler(watched, known)
        monkeypatch.setattr(sampler, "now_ns", lambda: now)
        for _ in range(40):
            now += 2 * SECOND
            await queue_sampler.round(now)
        assert {"acme": 100.0} == known.quotas
        watched.asked.clear()
        for _ in range(10):
            now += 2 * SECOND
            await queue_sampler.round(now)
        assert ([], {"acme": 100.0}) == (watched.asked, known.quotas)
        change(world, node, topic(qps=7.0))
        await queue_sampler.round(now + 2 * SECOND)
        assert {"acme": 7.0} == known.quotas
