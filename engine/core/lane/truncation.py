"""Decides which messages of a stream may be removed. Pure.

All messages up to the watermark are purged at once. Messages settled above a pinned watermark are deleted one by one,
in batches.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from evenlane.engine.core.lane.retention import SettledHistory
from evenlane.engine.core.lane.settled_set import SettledSet, common_runs, runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Truncation:
    """The progress of a stream's truncation. The stream is purged up to `purged`.

    Invariant: `_removed` has the sequences that the stream is known not to hold any more, those up to `purged`, too.

    `last_purge` and `last_probe` (monotonic ns) are the times of the last purge, and of the last look at the message
    that pins the watermark.
    """

    def __init__(self, settled: SettledSet) -> None:
        self._settled, self._removed = settled, SettledSet()
        self.purged = self.last_purge = self.last_probe = 0

    def take_over(self, first: int) -> None:
        """Take over from a previous owner, which may not have removed all that it settled. The stream
        begins at `first`.
        """
        self.note_purged(max(0, min(self._settled.watermark, first - 1)))

    @property
    def durable_watermark(self) -> int:
        """The sequence up to which everything is durably settled and may be purged."""
        return self._settled.watermark

    def find_aged(self, now: int, age: int) -> SettledSet:
        """The messages that have been settled for `age` ns, and up to an eighth of it more; `now` is monotonic ns. A
        stream with a watermark knows it by the time of arrival.
        """
        raise NotImplementedError

    @property
    def is_behind(self) -> bool:
        """Whether the stream may hold messages that a removal takes away."""
        return self.durable_watermark > self.purged or bool(self.choose_erasable(1))

    def note_settled(self, sequences: list[int]) -> None:
        """Note newly settled messages, durable in the log."""

    def note_missing(self, first: int, last: int) -> None:
        """Note that the stream doesn't hold these messages."""
        self._removed.add_run(first, last)

    def note_purged(self, watermark: int) -> None:
        self.purged = watermark
        self._removed.add_run(1, watermark)

    def note_erased(self, sequences: Sequence[int]) -> None:
        """Note messages that were deleted singly, in rising order: checkpoints needn't name them any more."""
        self._removed.add_sorted(list(sequences))

    def list_unerased(self, unsynced: list[int]) -> list[tuple[int, int]]:
        """The runs that a checkpoint must repeat: all settled messages above the watermark, `unsynced` included, that
        may still be in the stream.
        """
        return sorted([*common_runs([self._settled], self._removed, self._settled.watermark + 1), *runs(unsynced)])

    def choose_erasable(self, count: int, others: Sequence[SettledSet] = ()) -> list[int]:
        """Up to `count` settled messages to be deleted singly, in rising order; `note_erased` ends each batch. `others`
        are what other subscriptions have settled: each must have settled the messages, too.
        """
        start = (self.purged if others else self._settled.watermark) + 1  # alone, a purge takes the rest
        return _take(common_runs([self._settled, *others], self._removed, start), count)


class DelayTruncation(Truncation):
    """The truncation of a stream whose feeds skip messages that aren't due soon: it has no watermark, and each settled
    message is deleted singly.

    Invariant: `_stored` has the settled messages that the stream may still hold.
    """

    def __init__(self, settled: SettledSet) -> None:
        super().__init__(settled)
        self._stored, self._history = SettledSet(-1), SettledHistory()

    def take_over(self, first: int) -> None:
        for start, last in chain([(1, self._settled.watermark)], self._settled.above()):
            if last >= first:
                self._stored.add_run(max(start, first), last)

    @property
    def durable_watermark(self) -> int:
        return 0

    def find_aged(self, now: int, age: int) -> SettledSet:
        return self._history.find_aged(self._stored, now, age)

    def note_settled(self, sequences: list[int]) -> None:
        self._stored.add_sorted(sequences)

    def note_missing(self, first: int, last: int) -> None:
        """The feeds skip messages that the stream holds."""

    def note_erased(self, sequences: Sequence[int]) -> None:
        for sequence in sequences:
            self._stored.discard(sequence)
            self._settled.discard(sequence)

    def list_unerased(self, unsynced: list[int]) -> list[tuple[int, int]]:
        return sorted([*self._stored.above(), *runs(unsynced)])

    def choose_erasable(self, count: int, others: Sequence[SettledSet] = ()) -> list[int]:
        return _take(common_runs([self._stored, *others], SettledSet(), 0), count)


def _take(spans: Iterable[tuple[int, int]], count: int) -> list[int]:
    found: list[int] = []
    for first, last in spans:
        found += range(first, min(last, first + count - len(found) - 1) + 1)
        if len(found) >= count:
            break
    return found
