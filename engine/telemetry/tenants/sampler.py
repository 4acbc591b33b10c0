"""Samples a node's queues that aren't silent, at a limited rate and in small slices."""

from __future__ import annotations

import asyncio
import random
from collections import Counter, deque
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.core.queue.queue_head import head_waits_since, place_of_head, waits_since
from evenlane.engine.node.partitions.stable_streams import stable_streams
from evenlane.engine.node.queues.activity import is_silent
from evenlane.engine.telemetry import wait_reasons
from evenlane.engine.telemetry.tenants.backlog import QueueSample
from evenlane.engine.telemetry.tenants.flows import measure_flow
from evenlane.engine.telemetry.tenants.history import sum_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.node import Node
    from evenlane.engine.node.partitions.stable_streams import Streams
    from evenlane.engine.telemetry.tenants.registry import TenantRegistry
    from evenlane.quota.topics.topic import Topic

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_QUIET = 3 * _SECOND  # nothing is measured for this time after a takeover
_READS = 64  # heads read from the store per round
_READ_S = 0.5
_REMEMBERED = 60 * _SECOND  # for which a queue is still counted after it has left the node


@dataclass(frozen=True, slots=True)
class SamplerTuning:
    """Speed of sampling: 2,000 queues per second."""

    slice: int = 100
    """Queues per turn of the loop: less than a millisecond."""
    pause_s: float = 0.05
    """Pause between two such turns, in s."""
    round_s: tuple[float, float] = (0.8, 1.2)
    """Range of the interval between two rounds, in s."""


class QueueSampler:
    """Samples one node in rounds, and adds the results to `tenants`. Call `open` when the node exists, `close` before
    its store is closed. The rounds' intervals are random: samples in step with a quota's tokens would always see the
    same phase.
    """

    def __init__(
        self,
        node: Node,
        tenants: TenantRegistry,
        uniform: Callable[[float, float], float] = random.uniform,
        tuning: SamplerTuning = SamplerTuning(),
    ) -> None:
        self._node, self._tenants, self._uniform, self._tuning = node, tenants, uniform, tuning
        self._head_times = HeadTimes(node)
        self._watch = node.queues.activity.watch(node.queues.all())
        self._fed: Streams | None = None  # throughout the last round
        self._revision = -1  # of the node's shares, in the last round
        self._left: deque[tuple[int, Queue]] = deque()  # queues that left, with the time
        self._task: asyncio.Task[None] | None = None

    def open(self) -> None:
        self._tenants.clear()
        self._node.queues.on_gone.append(self._on_queues_gone)
        self._task = asyncio.create_task(self._go_round(), name="sampling")

    async def close(self) -> None:
        """Stop. No effect if never opened."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._count_last()
            self._tenants.clear()
            self._tenants.history.end()
        self._watch.close()

    def _count_last(self) -> None:
        """Count completions since the last look, including those while the node stopped."""
        self._node.times.add_up()
        self._on_queues_gone(self._watch.queues)
        for _ in chain(self._count_gone(now_ns()), self._tenants.count(self._weight)):
            pass

    async def _go_round(self) -> None:
        while True:
            began = now_ns()
            try:
                await self.round(began)
            except Exception:  # noqa: BLE001 - a defect here must not end the node
                _log.exception("the queues could not be looked at")
            took = (now_ns() - began) / _SECOND
            await asyncio.sleep(max(self._tuning.pause_s, self._uniform(*self._tuning.round_s) - took))

    async def round(self, now: int) -> None:
        """Look once at each queue that may not be silent."""
        tenants = self._tenants
        fed = self._streams()
        tenants.projects = self._node.queues.project_names
        tenants.begin(now)
        self._node.times.add_up()
        self._node.pool.credit(now)
        queues = list(self._watch.queues)
        size = self._tuning.slice
        for start in range(0, len(queues), size):
            self._look_at(queues[start : start + size])
            if start + size <= len(queues):
                await asyncio.sleep(self._tuning.pause_s)
        await _slowly(self._count_gone(now), size)
        await _slowly(tenants.count(self._weight), size)
        came = await self._head_times.read(tenants.places())
        before, self._fed = self._fed, fed if fed == self._streams() else None
        if before is None or before != self._fed:  # earlier counts are no basis for rates
            tenants.measure_again()
        shares = self._node.queues.shares
        if self._revision != shares.revision:
            self._revision = shares.revision
            tenants.on_rules_change()
        ends = tenants.end(now_ns(), self._node.store.now(), self._count_in_flight(), came, self._topic, shares.part)
        await _slowly(ends, size)
        second = self._node.store.now() // _SECOND
        tenants.history.add(second, sum_figures(tenants.moving), self._known_partitions(), tenants.left_out)

    def _known_partitions(self) -> list[int]:
        """Return the partitions whose whole backlog the node knows."""
        partitions = self._node.partitions
        return [number for number, each in partitions.items() if each.opened and not each.lane.is_catching_up]

    def _look_at(self, queues: Iterable[Queue]) -> None:
        """Look at queues in one moment, with all completions counted: a queue that is silent then has no changes."""
        self._node.times.add_up()
        running = {message.queue for message in self._node.in_flight}
        for queue in queues:
            if queue not in self._watch.queues:
                continue  # it has left since the round began
            look = self._look(queue)
            self._tenants.look(look)
            _note_wait(queue, look, self._tenants.round_s)
            if look.reason is None and is_silent(queue, running):
                self._watch.release(queue)

    def _look(self, queue: Queue) -> QueueSample:
        backlog = queue.backlog
        if backlog:
            reason, at = self._node.wait_rules.reason(queue), head_waits_since(queue)
            place = place_of_head(queue) if at is None else None
        else:
            reason, at, place = "not_due" if wait_reasons.count_not_due(self._node, queue)[0] else None, None, None
        return QueueSample(
            queue.project, queue.band, backlog, reason, at, place, measure_flow(queue), backlog - queue.spilled
        )

    def _on_queues_gone(self, queues: Iterable[Queue]) -> None:
        """Note queues that are no longer the node's. Their running messages will still end; silent queues have none."""
        now = now_ns()
        self._left += [(now, queue) for queue in queues if queue in self._watch.queues]

    def _count_gone(self, now: int) -> Iterator[None]:
        """Count queues that have left, one step per queue; others may leave meanwhile."""
        flying = {message.queue for message in self._node.in_flight}
        for _ in range(len(self._left)):
            at, queue = self._left.popleft()
            self._tenants.on_queue_gone(queue.project, queue.band, measure_flow(queue))
            if now - at < _REMEMBERED or queue in flying:
                self._left.append((at, queue))
            yield

    def _count_in_flight(self) -> Counter[tuple[str, int]]:
        return Counter((message.project, message.queue.band) for message in self._node.in_flight)

    def _streams(self) -> Streams | None:
        return stable_streams(self._node.partitions, now_ns(), _QUIET)

    def _topic(self, project: str) -> Topic | None:
        return next((queue.rules.topic for queue in self._node.queues.of_project(project)), None)

    def _weight(self, project: str) -> float:
        topic = self._topic(project)
        return topic.weight if topic is not None else 1.0


async def _slowly(steps: Iterable[None], size: int) -> None:
    """Run `size` steps per turn of the loop."""
    for number, _ in enumerate(steps, start=1):
        if number % size == 0:
            await asyncio.sleep(0)


def _note_wait(queue: Queue, look: QueueSample, round_s: float) -> None:
    """Add to the queue's wait times for reports: the reason of its head counts for its whole backlog, for the duration
    of the previous round.
    """
    if look.reason is not None and look.backlog and round_s:
        waited = queue.stats.waited
        if waited is None:
            waited = queue.stats.waited = {}
        waited[look.reason] = waited.get(look.reason, 0.0) + round_s * look.backlog * _SECOND


class HeadTimes:
    """When heads that aren't loaded began to wait: read once from the store, and kept while they stay the heads."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._known: dict[tuple[LaneId, int], int | None] = {}

    async def read(self, places: Collection[tuple[LaneId, int]]) -> dict[tuple[LaneId, int], int | None]:
        """Return when each head began to wait, in unix ns, None for a missing one. A call reads a limited number of
        heads; later calls read the rest.
        """
        known = self._known = {place: at for place, at in self._known.items() if place in places}
        by_lane: dict[LaneId, list[int]] = {}
        for lane, sequence in [place for place in places if place not in known][:_READS]:
            by_lane.setdefault(lane, []).append(sequence)
        try:
            async with asyncio.timeout(_READ_S):
                for lane, sequences in by_lane.items():
                    stored = await self._node.store.get(lane, sequences)
                    for sequence, message in zip(sequences, stored, strict=True):
                        known[lane, sequence] = None if message is None else waits_since(message)
        except (TimeoutError, Lost, Refused):
            pass
        return known
