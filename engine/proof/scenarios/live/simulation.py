"""`live` without servers: the scheduler alone, on a virtual clock, reconfigured at each change."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.core.scheduler.interface import start_next
from evenlane.engine.proof.cluster.records import HandlerRecord
from evenlane.engine.proof.load.arrivals import MILLISECOND, SECOND, stream_of
from evenlane.engine.proof.load.load import tenant
from evenlane.engine.proof.scenarios.live import load
from evenlane.engine.proof.scenarios.live.edits import Edit
from evenlane.engine.proof.scenarios.live.figures import Rules
from evenlane.engine.proof.simulator.node import SimQueue

if TYPE_CHECKING:
    from evenlane.engine.proof.scenario import Arms, Progress
    from evenlane.engine.proof.scenarios.live.load import Toggle
    from evenlane.quota.topics.topic import Topic

_SLOTS, _GROUPS = 50, 24
_CROWD, _CROWD_WEIGHT = 40, 5
_NODE, _NAME = "node", "edited"
_EDIT, _END = 5 * SECOND, 16 * SECOND
_NEXT_MESSAGE = 10 * SECOND  # after the edit
_SERVICE = int(load.SERVICE_S * SECOND)


def simulate(seed: int, progress: Progress) -> Arms:
    """The latency of each change in ms: of the product, and of one that reads a topic with its next message."""
    arms: Arms = {"product": {}, "new messages only": {}}
    toggles = [each for each in load.TOGGLES if each.changed is not None and each.kind != load.DRAIN]
    for number, toggle in enumerate(toggles):
        progress("live: the scheduler alone", number / len(toggles))
        for change, before, after in _changes(toggle):
            for figures, at in zip(arms.values(), (_EDIT, _EDIT + _NEXT_MESSAGE), strict=True):
                figures[f"{change}_ms"] = _latency(seed, change, before, after, at)
    return arms


def _changes(toggle: Toggle) -> list[tuple[str, Topic, Topic]]:
    spec = {"qps": 3_000, "groups": _GROUPS} | toggle.base
    here, there = (tenant(_NAME, **(spec | more)).topic for more in ({}, toggle.changed or {}))
    return [(toggle.there, here, there), (toggle.back, there, here)]


def _latency(seed: int, change: str, before: Topic, after: Topic, at: int) -> float:
    """The latency of an edit that the scheduler gets at an instant; the rest of the time if nothing shows it."""
    records = _Run(seed, before).to_end(at, after)
    edit = Edit(_NAME, change, _EDIT, _EDIT, 0, _END)
    [latency] = Rules(records).latencies(edit, {_NODE}, _EDIT)
    return latency.ns / MILLISECOND


class _Run:
    """One node with all slots taken."""

    def __init__(self, seed: int, topic: Topic) -> None:
        self._rng = stream_of(seed, "service")
        self._scheduler: FairScheduler[SimQueue] = FairScheduler(_SLOTS)
        self._records: list[HandlerRecord] = []
        self._ends: list[tuple[int, int, SimQueue]] = []
        self._started = 0
        self._scheduler.configure(_NAME, topic, 0)
        bands = (load.HIGH, load.LOW)
        queues = [SimQueue(_NAME, group, band) for group in range(topic.groups) for band in bands]
        for number in range(_CROWD):
            self._scheduler.configure(f"crowd-{number}", tenant("crowd", qps=100, weight=_CROWD_WEIGHT).topic, 0)
            queues.append(SimQueue(f"crowd-{number}", 0, load.HIGH))
        for queue in queues:
            self._scheduler.ready(queue, 0)

    def to_end(self, at: int, topic: Topic) -> list[HandlerRecord]:
        """The records of the edited topic's handlers, if it is changed at an instant."""
        now, is_changed = 0, False
        while now < _END:
            if not is_changed and now >= at:
                self._scheduler.configure(_NAME, topic, now)
                is_changed = True
            self._end_handlers(now)
            self._start_handlers(now)
            wake = self._scheduler.wake_at() if len(self._ends) < _SLOTS else None
            due = [
                each for each in (wake, self._ends[0][0] if self._ends else None, None if is_changed else at) if each
            ]
            now = max(now + 1, min(due)) if due else _END
        return self._records

    def _end_handlers(self, now: int) -> None:
        while self._ends and self._ends[0][0] <= now:
            queue = heappop(self._ends)[2]
            self._scheduler.finish(queue, now, _SERVICE)
            self._note(queue, now, began=False)

    def _start_handlers(self, now: int) -> None:
        while len(self._ends) < _SLOTS and (queue := start_next(self._scheduler, now)) is not None:
            self._started += 1
            service = self._rng.randrange(_SERVICE * 4 // 5, _SERVICE * 6 // 5)
            heappush(self._ends, (now + service, self._started, queue))
            self._note(queue, now, began=True)

    def _note(self, queue: SimQueue, now: int, *, began: bool) -> None:
        if queue.project == _NAME:
            sequence = len(self._records)
            self._records.append(
                HandlerRecord(now, 0, sequence, 0, 0, 1, queue.band, began, "lanes", False, _NAME, _NODE)
            )
