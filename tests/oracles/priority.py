"""Oracles of strict priority by a sorted list, and of ageing by counting."""

from collections.abc import Hashable
from fractions import Fraction
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class SortedLine(Generic[Item]):
    """The lowest band first, first come first served inside a band."""

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, Item]] = []
        self._count = 0

    def put(self, band: int, item: Item) -> None:
        self._count += 1
        self.waiting.append((band, self._count, item))
        self.waiting.sort(key=lambda entry: entry[:2])

    def bands(self) -> list[int]:
        """The bands with items, highest priority (lowest number) first."""
        return sorted({band for band, _, _ in self.waiting})

    def choose(self) -> int:
        """The next band."""
        return self.waiting[0][0]

    def take(self) -> Item:
        return self._take_of(self.choose())

    def _take_of(self, band: int) -> Item:
        entry = next(entry for entry in self.waiting if entry[0] == band)
        self.waiting.remove(entry)
        return entry[2]


class AgeingLine(SortedLine[Item]):
    """Of the turns for which several bands wait, `share` goes to the lower ones, in rotation."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share = Fraction(share)
        self.contested = 0  # turns so far for which several bands waited
        self.lower = 0  # of these, the turns that a lower band had
        self._last = 0  # the band that had the last of them

    def choose(self) -> int:
        highest, *lower = self.bands()
        if not lower or (self.contested + 1) * self._share < self.lower + 1:
            return highest
        return min(lower, key=lambda band: (band <= self._last, band))

    def take(self) -> Item:
        band, bands = self.choose(), self.bands()
        if len(bands) > 1:
            self.contested += 1
            if band != bands[0]:
                self.lower += 1
                self._last = band
        return self._take_of(band)
