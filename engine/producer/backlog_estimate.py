"""Estimates a project's backlog in a producer: the last count, plus this producer's own puts since then. Pure.

Each partition is counted every second by the node that owns it, otherwise by the store. A count states,
for each stream, the last sequence that it covers. A put of this producer is therefore either in the count or added to
it, never both. Puts of other producers appear in the next count: the limit may be exceeded by that many.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from evenlane.engine.producer.tuning import DEFAULT, ProducerTuning

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.core.records.backlog_report import BacklogEntry
    from evenlane.quota.topics.topic import Accepted

USABLE_S = 6.0  # an older count decides nothing
_STEP_S = 0.1
_MOST_STEPS = 64


class LocalPuts:
    """This producer's puts that a stream has stored but no count covers, in steps of 100 ms.

    Invariant: `count` is the sum of all steps' messages.
    """

    __slots__ = ("_began", "_steps", "count")

    def __init__(self) -> None:
        self._steps: deque[list[int]] = deque()  # [highest sequence, messages]
        self._began = 0.0
        self.count = 0

    def add(self, sequence: int, now: float) -> None:
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

    def drop_covered(self, position: int) -> None:
        """Drop the puts up to this sequence, which a count covers."""
        while self._steps and self._steps[0][0] <= position:
            self.count -= self._steps.popleft()[1]


class PartitionCount:
    """Count of one partition. `at` is its time in unix ns by the store's clock; the other times are monotonic s."""

    __slots__ = ("at", "count", "fresh_until", "lane", "later", "usable_until")

    def __init__(self) -> None:
        self.count = self.at = 0
        self.fresh_until = self.usable_until = 0.0
        self.lane, self.later = LocalPuts(), LocalPuts()

    @property
    def total(self) -> int:
        return self.count + self.lane.count + self.later.count


class BacklogEstimate:
    """Estimate for one project. `known` is the backlog as counted or put by this producer; `flying` are puts without an
    outcome.

    Invariant: `known` is the sum of all partitions' totals, and `fresh_until` and `usable_until` (monotonic s) are the
    earliest of theirs.
    """

    def __init__(self, project: str, tuning: ProducerTuning = DEFAULT) -> None:
        self.project, self._tuning = project, tuning
        self.accepted: Accepted | None = None
        self.limit = 0
        self.known = self.flying = 0
        self.fresh_until = self.usable_until = 0.0
        self._parts: dict[int, PartitionCount] = {}

    def follow(self, accepted: Accepted, partitions: Collection[int]) -> None:
        """Apply a new or changed topic."""
        self.accepted = accepted
        self.limit = accepted.topic.max_backlog or 0
        self._parts = {number: self._parts.get(number) or PartitionCount() for number in partitions}
        self._add_up()

    @property
    def is_full(self) -> bool:
        return self.known + self.flying >= self.limit

    def stale(self, now: float) -> list[int]:
        """Return the partitions whose count must be requested from the store."""
        return [number for number, part in self._parts.items() if now >= part.fresh_until]

    # ---- counts

    def apply_report(self, entry: BacklogEntry, at: int, now: float, fresh_s: float | None = None) -> None:
        """Apply a node's count, unless it is older than the known one, as a previous owner's may be. It is fresh for
        `fresh_s`, by default for `reported_within_s`.
        """
        part = self._parts.get(entry.partition)
        if part is None or at < part.at:
            return
        fresh_s = fresh_s or self._tuning.reported_within_s
        self._count(entry.partition, entry.count, entry.lane, entry.later, at, now, fresh_s)

    def apply_count(self, partition: int, count: int, lane: int, later: int, at: int, now: float) -> None:
        """Apply a count of the store."""
        self._count(partition, count, lane, later, at, now, self._tuning.counted_s)

    def note_no_count(self, now: float) -> None:
        """Note that the store doesn't answer: continue with the known counts until the next request."""
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
        part.lane.drop_covered(lane)
        part.later.drop_covered(later)
        part.fresh_until, part.usable_until = now + fresh_s, now + USABLE_S
        self._add_up()

    def _add_up(self) -> None:
        parts = self._parts.values()
        self.known = sum(part.total for part in parts)
        self.fresh_until = min((part.fresh_until for part in parts), default=0.0)
        self.usable_until = min((part.usable_until for part in parts), default=0.0)

    # ---- own puts

    def note_outcome(self, subject: str, receipt: Receipt | None, now: float) -> None:
        """Note the outcome of a put: stored, not stored or unknown."""
        self.flying -= 1
        if receipt is None or receipt.duplicate:
            return
        kind, _, partition, _ = subject.split(".", 3)
        part = self._parts.get(int(partition))
        if part is not None:
            (part.lane if kind == "lanes" else part.later).add(receipt.sequence, now)
            self.known += 1
