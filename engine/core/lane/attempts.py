"""Keeps attempt marks: the attempts and suspicions of single messages that their stream doesn't show. Pure.

An attempt leaves no copy in the stream if the message stays in its lane (in an ordered topic), or if its process died
(X11). A *suspect* was in flight when its process died; it is *confirmed* if nothing else can have caused the death.

A mark is an integer: two flags, 12 bits for the number of attempts, 40 bits for the time at which the next attempt is
due (s since 1970), and above them the epoch under which a previous owner still handles the message
(engine/cluster/ownership/handoff.py). The epoch is kept until that owner is known to have ended. Whichever node owns
the lane by then counts the death of that owner, however many owners there were in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUSPECT = 1
CONFIRMED = 2
_COUNT = 2  # position of the number of attempts, bits
_DUE = 14  # position of the due time, bits
_HELD = 54  # position of the epoch, bits
_MOST = (1 << (_DUE - _COUNT)) - 1
_LATEST = (1 << (_HELD - _DUE)) - 1
_OWN = (1 << _HELD) - 1  # all but the epoch
_SECOND = 1_000_000_000


def attempts(mark: int) -> int:
    """The number of attempts that a mark counts."""
    return mark >> _COUNT & _MOST


def due(mark: int) -> int:
    """The time at which the next attempt is due, unix ns by the store's clock; 0: at once."""
    return (mark >> _DUE & _LATEST) * _SECOND


def holder_of(mark: int) -> int:
    """The epoch of the previous owner that still handles the message, as far as is known; 0: none."""
    return mark >> _HELD


def own(mark: int) -> int:
    """The mark without the holder's epoch, which only the holder's record can confirm. Below 2**54."""
    return mark & _OWN


def one_less(mark: int) -> int:
    """The mark as it was before its last attempt."""
    return mark - (1 << _COUNT)


def _one_more(mark: int) -> int:
    count = min(attempts(mark) + 1, _MOST)
    return mark & (SUSPECT | CONFIRMED) | count << _COUNT


class AttemptMarks:
    """The attempt marks of a lane.

    Invariant: `of` has the marks that aren't 0, by sequence. `unsynced` has the sequences whose mark has changed since
    it was last written to the settle log; a sequence in `unsynced` but not in `of` has lost its mark.
    """

    __slots__ = ("of", "unsynced")

    def __init__(self, known: dict[int, int] | None = None) -> None:
        self.of: dict[int, int] = known or {}
        self.unsynced: set[int] = set()

    def mark_failed(self, sequence: int, again_at: int) -> None:
        """Count an attempt that has failed while its process lives on; the next one is due at `again_at` (unix ns)."""
        mark = _one_more(self.of.get(sequence, 0)) & ~(SUSPECT | CONFIRMED)
        self._set(sequence, mark | min(-(-again_at // _SECOND), _LATEST) << _DUE)

    def mark_died(self, sequence: int, *, counts: bool, confirmed: bool) -> None:
        """Mark a message that was in flight when its process died. `counts` says whether that counts as an attempt."""
        mark = own(self.of.get(sequence, 0))
        mark = (_one_more(mark) if counts else mark) | SUSPECT
        self._set(sequence, mark | CONFIRMED if confirmed else mark)

    def merge(self, sequence: int, mark: int) -> None:
        """Merge the mark that a previous owner reports. The mark known here wins if it is newer: it counts
        more attempts, or the same number and has a suspicion, which comes from the log.
        """
        known = self.of.get(sequence, 0)
        if attempts(mark) > attempts(known) or (attempts(mark) == attempts(known) and not known & SUSPECT):
            self._set(sequence, own(mark) | known & ~_OWN)

    def hold(self, sequence: int, epoch: int) -> None:
        """Note that a previous owner, of this epoch, still handles the message."""
        mark = self.of.get(sequence, 0)
        if holder_of(mark) != epoch:
            self._set(sequence, own(mark) | epoch << _HELD)

    def release(self, sequence: int) -> None:
        """Note that the previous owner no longer handles the message."""
        if (mark := self.of.get(sequence, 0)) > _OWN:
            self._set(sequence, own(mark))

    def release_all(self) -> None:
        """Release all held messages: holders must report what they hold again."""
        for sequence in [sequence for sequence, mark in self.of.items() if mark > _OWN]:
            self.release(sequence)

    def clear_due(self, sequence: int) -> None:
        """Clear the due time of a message whose next attempt is due. Nothing is written: the log's due time is rounded
        up anyway.
        """
        if (mark := self.of.get(sequence)) is not None:
            self.of[sequence] = mark & (1 << _DUE) - 1

    def mark_cleared(self, sequence: int) -> None:
        """Clear the suspicion of a message that was handled again while its process lived on."""
        if (mark := self.of.get(sequence, 0)) & SUSPECT:
            self._set(sequence, mark & ~(SUSPECT | CONFIRMED))

    def drop(self, sequences: Iterable[int]) -> None:
        """Drop the marks of settled messages."""
        for sequence in sequences:
            if self.of.pop(sequence, None) is not None:
                self.unsynced.discard(sequence)

    def _set(self, sequence: int, mark: int) -> None:
        if mark:
            self.of[sequence] = mark
        else:
            self.of.pop(sequence, None)
        self.unsynced.add(sequence)

    def take_unsynced(self, most: int) -> list[int]:
        """Take up to `most` sequences out of `unsynced`, in rising order, for the next record of the log."""
        sequences = sorted(self.unsynced)
        self.unsynced = {*sequences[most:]}
        return sequences[:most]

    def pairs(self, sequences: Iterable[int]) -> Iterator[tuple[int, int]]:
        """The (sequence, mark) of these sequences; the mark is 0 where there is none any more."""
        return ((sequence, self.of.get(sequence, 0)) for sequence in sequences)
