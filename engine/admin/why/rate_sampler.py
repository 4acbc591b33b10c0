"""Measures the rates of one project on a node, for questions about projects that the metrics sum up with others."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from operator import add
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.stats.flow_counts import FlowCounts
from evenlane.engine.core.stats.forecast import LONG, LONG_APART, UNKNOWN, Sample, SampleHistory, measure_rates
from evenlane.engine.node.partitions.stable_streams import stable_streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.records.backlog_answer import Rates
    from evenlane.engine.node.node import Node
    from evenlane.engine.node.partitions.stable_streams import Streams
    from evenlane.quota.topics.topic import Topic

    Circumstances = tuple[Topic | None, Streams]
    Histories = tuple[SampleHistory, SampleHistory]

_QUIET = 3  # times the measuring time: that long after a takeover, nothing is measured
_SECOND = 1_000_000_000
_SLICE = 200  # queues per turn of the loop
_PROJECTS = 256  # projects with remembered samples


async def queues_of(node: Node, project: str) -> AsyncIterator[Queue]:
    """Yield a project's queues, with a turn of the event loop now and then."""
    for number, queue in enumerate(list(node.queues.of_project(project)), start=1):
        yield queue
        if number % _SLICE == 0:
            await asyncio.sleep(0)


class RateSampler:
    """Measures rates over `measure_s` seconds, or since an earlier question.

    Invariant: a project's two histories in `_histories`, the second for measurements over a longer time, hold only
    samples under its present circumstances; least recently used projects come first.
    """

    def __init__(self, node: Node, measure_s: float) -> None:
        self._node, self._measure_s = node, measure_s
        self._histories: OrderedDict[str, tuple[Circumstances, Histories]] = OrderedDict()

    async def measure(self, project: str) -> tuple[Rates, Rates | None]:
        """Measure rates since an earlier question of the last 30 s, otherwise over `measure_s` from now on. Unknown if
        partitions have come or gone recently: a backlog that was taken over has arrived only from this node's view. The
        second rates are those since an earlier question of the last 90 s, if there was one.
        """
        fed = self._streams()
        if fed is None:
            return UNKNOWN, None
        history, long = self._history(project, fed)
        last = await self._sample(project)
        first = history.find_before(last.at)
        if first is None:
            history.add(last)
            await asyncio.sleep(self._measure_s)
            first, last = last, await self._sample(project)
        if self._streams() != fed:
            return UNKNOWN, None
        history.add(last)
        long_first = long.find_before(last.at, LONG)
        long.add(last)
        return measure_rates(first, last), None if long_first is None else measure_rates(long_first, last)

    def _streams(self) -> Streams | None:
        return stable_streams(self._node.partitions, now_ns(), round(_QUIET * self._measure_s * _SECOND))

    async def _sample(self, project: str) -> Sample:
        sums = [0] * len(FlowCounts._fields)
        async for queue in queues_of(self._node, project):
            sums = [*map(add, sums, queue.stats.flow)]
        return Sample(now_ns(), FlowCounts(*sums))

    def _history(self, project: str, fed: Streams) -> Histories:
        """Return the project's samples under its present circumstances, as others would give other rates."""
        now = next((queue.rules.topic for queue in self._node.queues.of_project(project)), None), fed
        known, histories = self._histories.pop(project, (None, None))
        if histories is None or known != now:
            histories = SampleHistory(int(self._measure_s * _SECOND)), SampleHistory(LONG_APART)
        self._histories[project] = now, histories
        if len(self._histories) > _PROJECTS:
            self._histories.popitem(last=False)
        return histories
