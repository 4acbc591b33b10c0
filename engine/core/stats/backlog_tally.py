"""Tallies the backlog of a project on a node from its queues, and defines the report of it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from evenlane.engine.core.stats.forecast import Rates
from evenlane.quota.topics.topic import Topic  # noqa: TC001 - msgspec reads it

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SECOND = 1_000_000_000


class Count(msgspec.Struct):
    """The number of groups that wait for a reason, and of messages in them; None: unknown."""

    groups: int = 0
    messages: int | None = 0


class QueueCount(msgspec.Struct):
    """The backlog of one priority. `oldest_s` is the longest wait, `next_due_s` the time until the next delayed message
    is due (s). `waited` is the time (s) that the heads of its queues have waited recently, summed up by reason.
    """

    waiting: int = 0
    in_flight: int = 0
    delayed: int = 0
    oldest_s: float | None = None
    next_due_s: float | None = None
    reasons: dict[str, Count] = {}
    waited: dict[str, float] = {}


class NodeAnswer(msgspec.Struct):
    """One node's report of a project. `deepest` is the number of messages in its largest group; `waited_s` the period
    (s) that `waited` covers; `may_use` the rate (msg/s) of the node's part of the topic; `partitions` those that it
    serves (None: an older release doesn't say). `lost` is the project's topic if it is in effect on the node although
    etcd has lost it.
    """

    node: str
    queues: int = 0
    parts: dict[str, QueueCount] = {}
    deepest: int = 0
    rates: Rates = Rates()
    notes: list[str] = []
    waited_s: float = 0.0
    may_use: float | None = None
    partitions: list[int] | None = None
    lost: Topic | None = None


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
