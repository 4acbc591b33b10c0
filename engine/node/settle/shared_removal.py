"""Plans what an owner removes from a stream whose messages others need, too, or that keeps settled messages for a
while.

The stream is purged up to the lowest of all watermarks. Once that stops moving, the messages above it that all have
settled are deleted singly; the settle logs of the others are read for that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.lane.settled_set import SettledSet

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.lane.retention import Retention
    from evenlane.engine.core.ports import Store
    from evenlane.engine.node.settle.removal_bound import RemovalBound

_SECOND = 1_000_000_000
_MOST_DELETES = 2_000  # each time that the settle logs of others are read; adoption of a registry waits for them
_LONGEST_WAIT = 10 * _SECOND


class Removal(NamedTuple):
    """What to remove: all up to the sequence `watermark`, and these single messages."""

    watermark: int = 0
    sequences: tuple[int, ...] = ()


class _Aged(NamedTuple):
    """The messages that needn't be kept any longer (None: all of them), and how many may be deleted at once."""

    settled: SettledSet | None
    most: int


_ANY = _Aged(None, _MOST_DELETES)


class SharedRemovalPlanner:
    """Plans removals. A lane is looked at once per `interval` (ns), and less often while nothing can be removed. Its
    lowest watermark is pinned once it has stood for `pinned_for` (ns). `now` is monotonic ns throughout.

    Invariants:
    - `_unmoved` has the lanes whose lowest watermark doesn't move, and since when.
    - `_waits` has how long (ns) the next plan waits after one that could remove nothing; it doubles each time.
    - `_read` has the number of the own log's last record, and the last records of all others, when all that the logs
      allow was deleted.
    """

    def __init__(self, store: Store, bound: RemovalBound, interval: int, pinned_for: int) -> None:
        self._store, self._bound, self._interval, self._pinned_for = store, bound, interval, pinned_for
        self._unmoved: dict[Lane, int] = {}
        self._waits: dict[Lane, int] = {}
        self._read: dict[Lane, list[bytes]] = {}

    def is_due(self, lane: Lane, now: int) -> bool:
        """Whether to plan a removal, if there is anything to remove."""
        return now - lane.removal.last_purge >= self._waits.get(lane, self._shortest_wait)

    def discard(self, lane: Lane) -> None:
        self._waits.pop(lane, None)
        self._unmoved.pop(lane, None)
        self._read.pop(lane, None)

    @property
    def _shortest_wait(self) -> int:
        retention = self._bound.retention
        return self._interval if retention is None else max(self._interval, retention.pause)

    async def plan(self, lane: Lane, now: int) -> Removal:
        """Plan the next removal. Raises Lost, Refused."""
        removal, retention = lane.removal, self._bound.retention
        aged = _ANY if retention is None else await self._find_aged(lane, retention, now)
        watermark = 0
        if removal.durable_watermark > removal.purged:
            watermark = await self._bound.find_watermark(lane)
            watermark = watermark if aged.settled is None else min(watermark, aged.settled.watermark)
        if watermark > removal.purged:
            self._waits.pop(lane, None)
            self._unmoved.pop(lane, None)
            return Removal(watermark)
        is_pinned = now - self._unmoved.setdefault(lane, now) > self._pinned_for
        if (is_pinned or lane.id.kind != "lanes") and (sequences := await self._find_common(lane, aged)):
            is_all = len(sequences) < _MOST_DELETES
            self._waits[lane] = max(self._shortest_wait, self._pinned_for) if is_all else self._interval
            return Removal(sequences=tuple(sequences))
        wait = self._waits.get(lane, self._shortest_wait)
        self._waits[lane] = max(self._shortest_wait, min(_LONGEST_WAIT, 2 * wait))
        return Removal()

    async def _find_common(self, lane: Lane, aged: _Aged) -> list[int]:
        """Messages that all subscriptions have settled, and that needn't be kept any longer."""
        own, ends = b"%d" % lane.log.durable_number, await self._bound.find_ends(lane)
        if ends is None or (aged is _ANY and [own, *ends] == self._read.get(lane)):
            return []
        if (logs := await self._bound.read_logs(lane)) is None:
            return []
        allowed = [log.settled for log in logs]
        found = lane.removal.choose_erasable(aged.most, allowed if aged.settled is None else [*allowed, aged.settled])
        if not found and aged is _ANY:
            self._read[lane] = [own, *(log.end for log in logs)]
        return found

    async def _find_aged(self, lane: Lane, retention: Retention, now: int) -> _Aged:
        size = await self._store.size(lane.id)
        excess = retention.count_excess(size.messages, size.bytes)
        if lane.id.kind == "lanes":
            first_kept = await self._store.find_since(lane.id, self._store.now() - retention.age)
            return _Aged(SettledSet(max(first_kept, size.first + excess) - 1), _MOST_DELETES)
        if excess:
            return _Aged(None, min(excess, _MOST_DELETES))
        return _Aged(lane.removal.find_aged(now, retention.age), _MOST_DELETES)
