"""What is known of single messages of a lane beyond their stream: attempts that left no copy, and suspicion. Pure.

An attempt leaves no copy where the message stays in its lane (in an ordered topic), or where its process died (X11). A
suspect was in flight when its process died; it is confirmed if nothing else can have been the cause. A mark is an
integer: two flags, 12 bits for the number of attempts, 40 bits for when the next one is due, in seconds since 1970, and
above them the epoch under which a former owner still handles it (engine/cluster/ownership/handoff.py). It stands there
until that is known to have ended, so that whoever is the owner then, and however many there were since, counts the
former one's death.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SUSPECT = 1
CONFIRMED = 2
_COUNT = 2  # bits below the number of attempts
_DUE = 14  # bits below the time
_HELD = 54  # bits below the epoch
_MOST = (1 << (_DUE - _COUNT)) - 1
_LATEST = (1 << (_HELD - _DUE)) - 1
_OWN = (1 << _HELD) - 1  # all but the epoch
_SECOND = 1_000_000_000


def attempts(mark: int) -> int:
    """How many attempts a mark counts."""
    return mark >> _COUNT & _MOST


def due(mark: int) -> int:
    """When the next attempt is due, unix ns by the store's clock; 0: at once."""
    return (mark >> _DUE & _LATEST) * _SECOND


def held_under(mark: int) -> int:
    """The epoch of the former owner who still handles it, or did when it was last heard of; 0: nobody."""
    return mark >> _HELD


def own(mark: int) -> int:
    """What it says but for who holds it, which is for the holder to tell. Below 2**54."""
    return mark & _OWN


def one_less(mark: int) -> int:
    """The mark as it was before its last attempt."""
    return mark - (1 << _COUNT)


def _one_more(mark: int) -> int:
    count = min(attempts(mark) + 1, _MOST)
    return mark & (SUSPECT | CONFIRMED) | count << _COUNT


class AttemptMarks:
    """By sequence. `news` are those that the settle log is to be told of."""

    __slots__ = ("news", "of")

    def __init__(self, known: dict[int, int] | None = None) -> None:
        self.of: dict[int, int] = known or {}
        self.news: set[int] = set()

    def failed(self, sequence: int, again_at: int) -> None:
        """An attempt has ended, and the process lives; the next one is due at `again_at` (unix ns)."""
        mark = _one_more(self.of.get(sequence, 0)) & ~(SUSPECT | CONFIRMED)
        self._set(sequence, mark | min(-(-again_at // _SECOND), _LATEST) << _DUE)

    def died(self, sequence: int, *, counts: bool, confirmed: bool) -> None:
        """It was in flight when its process died."""
        mark = own(self.of.get(sequence, 0))
        mark = (_one_more(mark) if counts else mark) | SUSPECT
        self._set(sequence, mark | CONFIRMED if confirmed else mark)

    def told_of(self, sequence: int, mark: int) -> None:
        """A former owner had it so; what is known here may be newer: a suspicion is, as it stands in the log."""
        known = self.of.get(sequence, 0)
        if attempts(mark) > attempts(known) or (attempts(mark) == attempts(known) and not known & SUSPECT):
            self._set(sequence, own(mark) | known & ~_OWN)

    def hold(self, sequence: int, epoch: int) -> None:
        """A former owner, of this epoch, still handles it."""
        mark = self.of.get(sequence, 0)
        if held_under(mark) != epoch:
            self._set(sequence, own(mark) | epoch << _HELD)

    def let_go(self, sequence: int) -> None:
        """The former owner handles it no more."""
        if (mark := self.of.get(sequence, 0)) > _OWN:
            self._set(sequence, own(mark))

    def let_go_all(self) -> None:
        """Whoever held anything has to say so anew."""
        for sequence in [sequence for sequence, mark in self.of.items() if mark > _OWN]:
            self.let_go(sequence)

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
