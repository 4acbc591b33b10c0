"""Decides which messages of a stream may be removed. Pure.

All messages up to the watermark are purged at once. Messages settled above a pinned watermark are deleted one by one,
in batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.lane.settled_set import runs

if TYPE_CHECKING:
    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.lane.settled_set import SettledSet

_ALL = 1 << 62


class Truncation:
    """The progress of a stream's truncation.

    Invariants:
    - The stream is purged up to `purged`. Settled messages above the watermark are deleted up to `_erased_to`, except
      the `stragglers`, which were settled after the deletes had passed them.
    - In a delay stream each settled message is deleted at once: `_erased_to` is infinite, and all settled messages that
      are still stored are stragglers.

    `last_purge` and `last_probe` (monotonic ns) are the times of the last purge, and of the last look at the message
    that pins the watermark.
    """

    def __init__(self, kind: Kind, settled: SettledSet) -> None:
        self._later, self._settled = kind != "lanes", settled
        self.purged = self.last_purge = self.last_probe = 0
        self._erased_to = _ALL if self._later else 0
        self.stragglers: list[int] = []

    def take_over(self, first: int) -> None:
        """Take over from a previous owner, which may not have removed all that it settled. The stream
        begins at `first`.
        """
        watermark = self._settled.watermark
        if self._later:
            spans = [(1, watermark), *self._settled.above()]
            self.stragglers = [sequence for start, end in spans for sequence in range(start, end + 1)]
        else:
            self._erased_to = watermark
            self.purged = max(0, min(watermark, first - 1))

    @property
    def durable_watermark(self) -> int:
        """The sequence up to which everything is durably settled and may be purged. 0 for a delay stream, whose feeds
        skip messages that aren't due soon.
        """
        return 0 if self._later else self._settled.watermark

    def note_settled(self, sequences: list[int]) -> None:
        """Note newly settled messages, durable in the log."""
        if self._erased_to > self._settled.watermark:
            self.stragglers += [s for s in sequences if s <= self._erased_to]

    def list_unerased(self, unsynced: list[int]) -> list[tuple[int, int]]:
        """The runs that a checkpoint must repeat: all settled messages, `unsynced` included, that are still in
        the stream.
        """
        spans = [] if self._later else list(self._settled.above(self._erased_to + 1))
        return sorted([*spans, *runs(sorted(self._list_above_watermark())), *runs(unsynced)])

    def choose_erasable(self, count: int) -> list[int]:
        """Up to `count` settled messages above the watermark, to be deleted singly. `note_erased` ends each batch."""
        found = self._list_above_watermark()[:count]
        if self._later:
            return found
        for first, last in self._settled.above(self._erased_to + 1):
            if len(found) >= count:
                break
            found += range(first, min(last, first + count - len(found) - 1) + 1)
        return found

    def note_erased(self, sequences: list[int]) -> None:
        """Note deleted messages: checkpoints needn't name them any more."""
        gone = set(sequences)
        self.stragglers = [s for s in self.stragglers if s not in gone]
        if self._later:
            for sequence in sequences:
                self._settled.discard(sequence)
            return
        before, self._erased_to = self._erased_to, max(self._erased_to, *sequences)
        # messages in this range that were settled while the deletes were under way
        for first, last in self._settled.above(before + 1):
            if first > self._erased_to:
                break
            self.stragglers += [s for s in range(first, min(last, self._erased_to) + 1) if s not in gone]

    def _list_above_watermark(self) -> list[int]:
        """The stragglers, without those that a purge removes anyway."""
        floor = self.durable_watermark
        self.stragglers = [s for s in self.stragglers if s > floor]
        return self.stragglers
