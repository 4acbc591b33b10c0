"""What of a stream may be removed: all up to the watermark is purged at once; what is settled above it, and stays there
because the watermark is pinned, is deleted bit by bit. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.lane.settled_set import runs

if TYPE_CHECKING:
    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.lane.settled_set import SettledSet

_ALL = 1 << 62


class Truncation:
    """The stream is purged up to `purged`, last at `last_purge`; what pins the watermark was last looked at at
    `last_probe` (monotonic ns). `stragglers` are settled, and still there, below what is erased already.
    """

    def __init__(self, kind: Kind, settled: SettledSet) -> None:
        self._later, self._settled = kind == "later", settled
        self.purged = self.last_purge = self.last_probe = 0
        # Settled messages up to here are deleted from the stream; of a later stream each one is, at once.
        self._erased_to = _ALL if self._later else 0
        self.stragglers: list[int] = []

    def take_over(self, first: int) -> None:
        """What the last owner settled, and may not have removed, of a stream that begins at `first`."""
        watermark = self._settled.watermark
        if self._later:
            spans = [(1, watermark), *self._settled.above()]
            self.stragglers = [sequence for start, end in spans for sequence in range(start, end + 1)]
        else:
            self._erased_to = watermark
            self.purged = max(0, min(watermark, first - 1))

    @property
    def durable_watermark(self) -> int:
        """All up to here is settled, in the log as well: it may be purged. 0 for a later stream, whose feeds
        pass over what isn't due for long.
        """
        return 0 if self._later else self._settled.watermark

    def settled(self, sequences: list[int]) -> None:
        """These are, from now on."""
        if self._erased_to > self._settled.watermark:
            self.stragglers += [s for s in sequences if s <= self._erased_to]

    def unerased(self, news: list[int]) -> list[tuple[int, int]]:
        """What a checkpoint must repeat: settled (`news`, too), and still in the stream."""
        spans = [] if self._later else list(self._settled.above(self._erased_to + 1))
        return sorted([*spans, *runs(sorted(self._above_watermark())), *runs(news)])

    def to_erase(self, count: int) -> list[int]:
        """Up to `count` settled messages above the watermark to delete one by one: `erased` ends each batch."""
        found = self._above_watermark()[:count]
        if self._later:
            return found
        for first, last in self._settled.above(self._erased_to + 1):
            if len(found) >= count:
                break
            found += range(first, min(last, first + count - len(found) - 1) + 1)
        return found

    def erased(self, sequences: list[int]) -> None:
        """These are gone from the stream: no checkpoint needs to name them any more."""
        gone = set(sequences)
        self.stragglers = [s for s in self.stragglers if s not in gone]
        if self._later:
            for sequence in sequences:
                self._settled.discard(sequence)
            return
        before, self._erased_to = self._erased_to, max(self._erased_to, *sequences)
        # what was settled in between while the deletes were under way
        for first, last in self._settled.above(before + 1):
            if first > self._erased_to:
                break
            self.stragglers += [s for s in range(first, min(last, self._erased_to) + 1) if s not in gone]

    def _above_watermark(self) -> list[int]:
        """The stragglers but for those that a purge removes anyway."""
        floor = self.durable_watermark
        self.stragglers = [s for s in self.stragglers if s > floor]
        return self.stragglers
