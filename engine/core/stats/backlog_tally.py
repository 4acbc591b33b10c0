"""Tallies the backlog of a project on a node from its queues. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.records.backlog_answer import Count, QueueCount
from evenlane.engine.core.stats.backlog_trend import lasting_reasons

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SECOND = 1_000_000_000


class QueueView(NamedTuple):
    """The state of one queue. Times are unix ns by the store's clock; 0 or None: none, or unknown."""

    priority: str
    group: int
    backlog: int
    delayed: int = 0
    next_due: int = 0
    head_at: int | None = None
    reason: str | None = None


class Tally:
    """Sums up a node's queues. `now` is the store's clock, unix ns."""

    def __init__(self, now: int) -> None:
        self._now = now
        self.parts: dict[str, QueueCount] = {}
        self._depths: dict[int, int] = {}

    @property
    def deepest(self) -> int:
        return max(self._depths.values(), default=0)

    def add(self, view: QueueView) -> None:
        part = self.part(view.priority)
        if view.delayed:
            part.delayed += view.delayed
            part.next_due_s = _least(part.next_due_s, max(0.0, (view.next_due - self._now) / _SECOND))
            count(part, "not_due", 1, view.delayed)
        if not view.backlog:
            return
        part.waiting += view.backlog
        self._depths[view.group] = self._depths.get(view.group, 0) + view.backlog
        if view.reason is not None:
            count(part, view.reason, 1, view.backlog)
        if view.head_at is not None:
            self.add_waiting(view.priority, view.head_at)

    def add_waiting(self, priority: str, at: int) -> None:
        """A message of this priority has been waiting since `at`."""
        part = self.part(priority)
        part.oldest_s = _most(part.oldest_s, max(0.0, (self._now - at) / _SECOND))

    def add_wait(self, priority: str, reason: str, seconds: float) -> None:
        """Heads of this priority have waited for this reason, in seconds."""
        found = self.part(priority).waited
        found[reason] = found.get(reason, 0.0) + seconds

    def add_running(self, priority: str) -> None:
        """Count one message that is being handled."""
        self.part(priority).in_flight += 1

    def drop_momentary(self) -> None:
        """Drop the reasons of the moment of priorities whose oldest message is young, once all ages are known."""
        for part in self.parts.values():
            part.reasons = lasting_reasons(part.reasons, part.oldest_s)

    def part(self, priority: str) -> QueueCount:
        if priority not in self.parts:
            self.parts[priority] = QueueCount()
        return self.parts[priority]


def merge_counts(parts: Iterable[QueueCount]) -> QueueCount:
    """The sum over several nodes for one priority. A group is on one node, so groups add up."""
    whole = QueueCount()
    for part in parts:
        whole.waiting += part.waiting
        whole.in_flight += part.in_flight
        whole.delayed += part.delayed
        whole.oldest_s = _most(whole.oldest_s, part.oldest_s)
        whole.next_due_s = _least(whole.next_due_s, part.next_due_s)
        for reason, found in part.reasons.items():
            count(whole, reason, found.groups, found.messages)
        for reason, seconds in part.waited.items():
            whole.waited[reason] = whole.waited.get(reason, 0.0) + seconds
    return whole


def rank_reasons(reasons: Mapping[str, Count]) -> list[tuple[str, Count]]:
    """The reasons, most frequent first: by groups, then by messages."""
    return sorted(reasons.items(), key=lambda item: (-item[1].groups, -(item[1].messages or 0), item[0]))


def count(part: QueueCount, reason: str, groups: int, messages: int | None) -> None:
    """Count groups, and messages in them, that wait for this reason."""
    found = part.reasons.setdefault(reason, Count())
    found.groups += groups
    found.messages = None if messages is None or found.messages is None else found.messages + messages


def _least(one: float | None, other: float | None) -> float | None:
    return min((value for value in (one, other) if value is not None), default=None)


def _most(one: float | None, other: float | None) -> float | None:
    return max((value for value in (one, other) if value is not None), default=None)
