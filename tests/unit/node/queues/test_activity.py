"""The active queues of a node are those that a scan of all queues finds, after any event (F9, E16)."""

import asyncio
import random

import pytest

from evenlane.engine.admin.backlog.drop import DropTask
from evenlane.engine.admin.backlog.drop_client import DropRequest
from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.message.handler_exceptions import Reject
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.records.meter_record import COUNTERS
from evenlane.engine.core.wire import headers
from evenlane.engine.node.queues.activity import Activity, is_silent
from evenlane.engine.telemetry import wait_reasons
from evenlane.engine.telemetry.metering.publisher import MeterPublisher
from evenlane.engine.telemetry.metric_names import OTHER
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.lane_host import Host
from tests.support.meter_totals import rows
from tests.support.node.two import GROUPS, P, Two, due_soon
from tests.support.node.world import CLUSTER_CONFIG, LANES, SECOND, change, topic, turns
from tests.support.until import until

PROJECTS = {
    "acme": {},
    "keyed": {"ordered": True},
    "brief": {"ttl": 0.05},
    "dropped": {"max_attempts": 1},
    "slow": {"qps": 50},
}
SHAPES = {
    "all in memory": MemoryBudget(),
    "small read-ahead": MemoryBudget(read_ahead=2),
    "spilled": MemoryBudget(index=3, read_ahead=2),
    "no room": MemoryBudget(payload_bytes=40, read_ahead=2, index=5),
}


def counters(queue):
    stats = queue.stats
    return (
        stats.arrived, stats.handled, stats.retried, stats.dead, stats.expired, stats.dropped, stats.attempts,
        stats.dwelt, stats.ran,
    )  # fmt: skip


class Observer:
    """Looks only at active queues, releases silent ones, and remembers the counters of each queue."""

    def __init__(self, node):
        self._node = node
        self._watch = node.queues.activity.watch(node.queues.all())
        self._seen = {}

    def _running(self):
        self._node.times.add_up()
        return {message.queue for message in self._node.in_flight}

    def _is_busy(self, queue, running):
        """Whether the queue's own state is active."""
        return bool(queue.backlog or queue in running or wait_reasons.count_not_due(self._node, queue)[0])

    def check(self):
        """Each queue that a scan finds is watched: messages wait, run or aren't due, or counters have changed."""
        running = self._running()
        for queue in self._node.queues.all():
            if self._is_busy(queue, running) or counters(queue) != self._seen.get(queue):
                assert queue in self._watch.queues, (queue.project, queue.group, queue.band)
            if queue.backlog:
                assert queue in self._node.queues.activity.noted

    def look(self):
        running = self._running()
        for queue in list(self._watch.queues):
            self._seen[queue] = counters(queue)
            if is_silent(queue, running) and not self._is_busy(queue, running):
                self._watch.release(queue)
        scan = {queue for queue in self._node.queues.all() if self._is_busy(queue, running) or queue.loading}
        assert scan == {*self._watch.queues}


class Run:
    """A node with random events, drawn from `draw`."""

    def __init__(self, world, draw):
        self._world, self._draw, self._epochs = world, draw, {P: 1, 1 - P: 2}
        self.known = TenantRegistry(CLUSTER_CONFIG.priorities, 3, CLUSTER_CONFIG.max_group_qps)

    async def begin(self, limits):
        self.node = node = await self._world.bare(handler=self._handle, limits=limits)
        for partition, epoch in self._epochs.items():
            await node.owned.open(partition, epoch)
        self.observer = Observer(node)
        self.sampling, self.meters = QueueSampler(node, self.known), MeterPublisher(node, self.known, 3600.0, 8)
        self.sampling.open()
        self.meters.open()

    async def _handle(self, _message):
        if self._draw.random() < 0.1:
            await asyncio.sleep(0.005)
        if self._draw.random() < 0.2:
            raise Reject("no") if self._draw.random() < 0.3 else RuntimeError("fails")

    async def step(self):
        await self._arrivals()
        await turns(self._draw.randint(0, 30))
        self.observer.check()
        await self._draw.choice([turns, turns, self._rules, self._purge, self._move, self.meters.publish])()
        self.observer.check()
        self.observer.look()

    async def _arrivals(self):
        draw = self._draw
        for _ in range(draw.randint(0, 12)):
            project = draw.choice([*PROJECTS])
            options = {"group": draw.choice(GROUPS[:3]), "priority": draw.choice(CLUSTER_CONFIG.priorities)}
            if project == "keyed":
                options["headers"] = {headers.KEY: draw.choice("ab")}
            if draw.random() < 0.25:
                options["due"] = due_soon() + draw.choice([0, 0, 3600 * SECOND])
            await self._world.put(project=project, **options)

    async def _rules(self):
        project, fields = self._draw.choice([*PROJECTS.items()])
        state = self._draw.choice(["active", "active", "paused"])
        change(self._world, self.node, topic(**fields, state=state), project)

    async def _purge(self):
        await DropTask(self.node, self._draw.choice([*PROJECTS]), DropRequest()).run()

    async def _move(self):
        """Release a partition, and open it again under another epoch."""
        self.node.owned.stop_partition(P)
        self.observer.check()
        await self.node.owned.hand_off(P, self._epochs[P], 0.01)
        self._epochs[P] = max(self._epochs.values()) + 1
        await self.node.owned.open(P, self._epochs[P])

    async def end(self):
        """Wait until nothing changes any more."""
        node = self.node
        for project, fields in PROJECTS.items():
            change(self._world, node, topic(**fields), project)
        await until(self._is_quiet)
        assert 0 == node.queues.backlog
        self.observer.check()

    def _is_quiet(self):
        """Whether the streams have only messages that are due in an hour."""
        messages = [each for lane in LANES for each in self._world.server.messages(names.stream("online", lane))]
        return all(headers.number(each.headers, headers.DUE, 0) > due_soon() + 600 * SECOND for each in messages)

    async def check_figures(self):
        """The metrics and the meter records agree with a scan."""
        await self.sampling.round(now_ns())
        queues, table = [*self.node.queues.all()], self.known.table
        names_of = {queue.project for queue in queues}
        labels = {label for label, _ in table} - {OTHER}
        assert names_of == {*self.node.queues.project_names}
        assert len(names_of - labels) == self.known.left_out
        assert {0} == {each.backlog for each in table.values()}
        counted = sum(flow.handled for flow in self.known.counted.values())
        assert self.node.counters.handled <= counted  # (stale results aren't counted)
        await self.meters.publish()
        reported = rows(each.body for each in self._world.server.messages(names.meter_stream("online")))
        last = {(row.partition, row.epoch, row.project, row.group, row.band): row.counters for row in reported}
        for queue in queues:
            if any(counters(queue)):
                row = last[queue.partition, self._epochs[queue.partition], queue.project, queue.group, queue.band]
                assert counters(queue)[:7] == tuple(row[name] for name in COUNTERS[:7])
        await self.meters.close()
        await self.sampling.close()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(6))
async def test_watched_queues_are_those_of_a_scan(shape, seed):
    """F9: after random arrivals, ends, retries, dead letters, expiry, delays, changed rules, purges and handoffs."""
    draw, limits = random.Random(f"{shape} {seed}"), SHAPES[shape]
    async with Two(**{name: topic(**fields) for name, fields in PROJECTS.items()}) as world:
        run = Run(world, draw)
        await run.begin(MemoryBudget(limits.payload_bytes, limits.read_ahead, limits.index))
        for _ in range(25):
            await run.step()
        await run.end()
        await run.check_figures()


def test_queue_is_active_once_its_tail_feed_delivers():
    """F9: the message is only counted at first, in a queue that may have been silent."""
    noted, queue = [], Queue("acme", 0, "mid", 1, 0)
    lane = FedLane(LaneId("lanes", 0), 1, MemoryBudget(), Host(lambda *_: queue, noted.append))
    lane.expect_backlog({"a subject": 3}, 10)
    for sequence in (11, 12):
        lane.take_in_tail(b"a subject", sequence, 0, b"", b"")
    assert ([queue], 2) == (noted, queue.backlog)


def test_released_queue_returns_to_all_observers():
    """F9: with its next message."""
    activity, queue = Activity(), Queue("acme", 0, "mid", 1, 0)
    one, other = activity.watch(), activity.watch([queue])
    activity.note(queue)
    one.release(queue)
    assert ([], [queue]) == ([*one.queues], [*other.queues])
    activity.note(queue)
    assert ([queue], [queue]) == ([*one.queues], [*other.queues])
    assert ([queue], []) == ([*other.take_changed()], [*other.queues])
    activity.note(queue)  # `other` has taken it
    assert [] == [*other.queues]
    other.release(queue)
    activity.note(queue)
    assert ([queue], [queue]) == ([*one.queues], [*other.queues])
    activity.discard([queue])
    other.close()
    assert ([], set()) == ([*one.queues], activity.noted)
