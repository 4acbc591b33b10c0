"""What is known of single messages of a lane beyond their stream: attempts that left no copy, and suspicion. Pure.

An attempt leaves no copy where the message stays in its lane (in an ordered topic), or where its process died (X11).
A suspect was in flight when its process died; it is confirmed if nothing else can have been the cause. A mark is an
integer: two flags, 12 bits for the number of attempts, and above them when the next one is due, in seconds since 1970.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUSPECT = 1
CONFIRMED = 2
_COUNT = 2  # bits below the number of attempts
_DUE = 14  # bits below the time
_MOST = (1 << (_DUE - _COUNT)) - 1
_SECOND = 1_000_000_000


def attempts(mark: int) -> int:
    """How many attempts a mark counts."""
    return mark >> _COUNT & _MOST


def due(mark: int) -> int:
    """When the next attempt is due, unix ns by the store's clock; 0: at once."""
    return (mark >> _DUE) * _SECOND


def one_less(mark: int) -> int:
    """The mark as it was before its last attempt."""
    return mark - (1 << _COUNT)


def _one_more(mark: int) -> int:
    count = min(attempts(mark) + 1, _MOST)
    return mark & (SUSPECT | CONFIRMED) | count << _COUNT


class Marks:
    """By sequence. `news` are those that the settle log is to be told of."""

    __slots__ = ("news", "of")

    def __init__(self, known: dict[int, int] | None = None) -> None:
        self.of: dict[int, int] = known or {}
        self.news: set[int] = set()

    def failed(self, sequence: int, again_at: int) -> None:
        """An attempt has ended, and the process lives; the next one is due at `again_at` (unix ns)."""
        mark = _one_more(self.of.get(sequence, 0)) & ~(SUSPECT | CONFIRMED)
        self._set(sequence, mark | -(-again_at // _SECOND) << _DUE)

    def died(self, sequence: int, *, counts: bool, confirmed: bool) -> None:
        """It was in flight when its process died."""
        mark = self.of.get(sequence, 0)
        mark = (_one_more(mark) if counts else mark) | SUSPECT
        self._set(sequence, mark | CONFIRMED if confirmed else mark)

    def told_of(self, sequence: int, mark: int) -> None:
        """A former owner had it so; what is known here may be newer."""
        if attempts(mark) >= attempts(self.of.get(sequence, 0)):
            self._set(sequence, mark)

    def is_due(self, sequence: int) -> None:
        """The time of its next attempt has come. The log needn't hear of it: there the time is rounded up."""
        if (mark := self.of.get(sequence)) is not None:
            self.of[sequence] = mark & (1 << _DUE) - 1

    def cleared(self, sequence: int) -> None:
        """It has been handled once more, and the process lives."""
        if (mark := self.of.get(sequence, 0)) & SUSPECT:
            self._set(sequence, mark & ~(SUSPECT | CONFIRMED))

    def drop(self, sequences: Iterable[int]) -> None:
        """These are settled: nobody asks any more."""
        for sequence in sequences:
            if self.of.pop(sequence, None) is not None:
                self.news.discard(sequence)

    def _set(self, sequence: int, mark: int) -> None:
        if mark:
            self.of[sequence] = mark
        else:
            self.of.pop(sequence, None)
        self.news.add(sequence)

    def told(self, most: int) -> list[int]:
        """Up to so many that are news, rising: the next record says them, and from here on they aren't."""
        sequences = sorted(self.news)
        self.news = {*sequences[most:]}
        return sequences[:most]

    def pairs(self, sequences: Iterable[int]) -> Iterator[tuple[int, int]]:
        """(sequence, mark), 0 where there is none any more."""
        return ((sequence, self.of.get(sequence, 0)) for sequence in sequences)
