"""A project's backlog as a producer knows it: what was counted, and what it has put itself since then. Pure.

Somebody counts each partition: the node that owns it, each second, or else the store. A count says up to which
sequence of each stream it goes, so that a put of our own is in it or is added to it, and never both. What others put
after a count shows in the next one: by so much the limit may be overshot.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from evenlane.engine.producer.tuning import DEFAULT, Tuning

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.core.wire.backlog_report import BacklogEntry
    from evenlane.quota.topics.topic import Accepted

USABLE_S = 6.0  # older than that, nothing is decided by it
_STEP_S = 0.1
_MOST_STEPS = 64


class LocalPuts:
    """Our own puts that a stream has stored, in steps of 100 ms."""

    __slots__ = ("_began", "_steps", "count")

    def __init__(self) -> None:
        self._steps: deque[list[int]] = deque()  # highest sequence, messages
        self._began = 0.0
        self.count = 0

    def stored(self, sequence: int, now: float) -> None:
        self.count += 1
        steps = self._steps
        if steps and now - self._began < _STEP_S:
            steps[-1][0] = max(steps[-1][0], sequence)
            steps[-1][1] += 1
            return
        steps.append([sequence, 1])
        self._began = now
        if len(steps) > _MOST_STEPS:
            oldest = steps.popleft()
            steps[0] = [max(oldest[0], steps[0][0]), oldest[1] + steps[0][1]]

    def covered(self, position: int) -> None:
        """All up to this sequence is in somebody's count."""
        while self._steps and self._steps[0][0] <= position:
            self.count -= self._steps.popleft()[1]


class PartitionCount:
    """One partition's. `at` is when it was counted, unix ns by the store's clock; the others are monotonic s."""

    __slots__ = ("at", "count", "fresh_until", "lane", "later", "usable_until")

    def __init__(self) -> None:
        self.count = self.at = 0
        self.fresh_until = self.usable_until = 0.0
        self.lane, self.later = LocalPuts(), LocalPuts()

    @property
    def total(self) -> int:
        return self.count + self.lane.count + self.later.count


class BacklogEstimate:
    """`known` is what waits, as far as it was counted or put by us; `flying` are puts without an outcome."""

    def __init__(self, project: str, tuning: Tuning = DEFAULT) -> None:
        self.project, self._tuning = project, tuning
        self.accepted: Accepted | None = None
        self.limit = 0
        self.known = self.flying = 0
        self.fresh_until = self.usable_until = 0.0
        self._parts: dict[int, PartitionCount] = {}

    def follow(self, accepted: Accepted, partitions: Collection[int]) -> None:
        """The topic has changed, or is seen for the first time."""
        self.accepted = accepted
        self.limit = accepted.topic.max_backlog or 0
        self._parts = {number: self._parts.get(number) or PartitionCount() for number in partitions}
        self._add_up()

    @property
    def full(self) -> bool:
        return self.known + self.flying >= self.limit

    def stale(self, now: float) -> list[int]:
        """The partitions whose count is to be asked of the store."""
        return [number for number, part in self._parts.items() if now >= part.fresh_until]

    # ---- what is counted

    def told(self, entry: BacklogEntry, at: int, now: float) -> None:
        """By a node; that of a former owner may come late."""
        part = self._parts.get(entry.partition)
        if part is None or at < part.at:
            return
        self._count(entry.partition, entry.count, entry.lane, entry.later, at, now, self._tuning.told_s)

    def counted(self, partition: int, count: int, lane: int, later: int, at: int, now: float) -> None:
        """By the store."""
        self._count(partition, count, lane, later, at, now, self._tuning.counted_s)

    def uncounted(self, now: float) -> None:
        """The store doesn't answer: go on with what is known, until it is asked again."""
        for part in self._parts.values():
            if now >= part.fresh_until:
                part.fresh_until = now + self._tuning.counted_s
                part.usable_until = max(part.usable_until, now + 2 * self._tuning.counted_s)
        self._add_up()

    def _count(self, partition: int, count: int, lane: int, later: int, at: int, now: float, fresh_s: float) -> None:
        part = self._parts.get(partition)
        if part is None:
            return
        part.count, part.at = count, at
        part.lane.covered(lane)
        part.later.covered(later)
        part.fresh_until, part.usable_until = now + fresh_s, now + USABLE_S
        self._add_up()

    def _add_up(self) -> None:
        parts = self._parts.values()
        self.known = sum(part.total for part in parts)
        self.fresh_until = min((part.fresh_until for part in parts), default=0.0)
        self.usable_until = min((part.usable_until for part in parts), default=0.0)

    # ---- what we put

    def ended(self, subject: str, receipt: Receipt | None, now: float) -> None:
        """A put has its outcome: it is stored, or isn't, or nobody knows."""
        self.flying -= 1
        if receipt is None or receipt.duplicate:
            return
        kind, _, partition, _ = subject.split(".", 3)
        part = self._parts.get(int(partition))
        if part is not None:
            (part.lane if kind == "lanes" else part.later).stored(receipt.sequence, now)
            self.known += 1
