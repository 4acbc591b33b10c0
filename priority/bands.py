"""Strict priority inside a group, and ageing for topics that ask for it.

A group's ready queues are a set of bands, stored as the bits of one integer; band 0 is the highest priority, so the
lowest set bit is next (E5). Ageing relaxes that by a stated share: of the messages handed out while more than one band
waits, this share goes to the lower bands, in turn.
"""

from __future__ import annotations


def first(mask: int) -> int:
    """The highest priority in a mask that isn't 0."""
    return (mask & -mask).bit_length() - 1


class Ageing:
    """Gives `share` (0 .. 1) of the turns to the lower bands. It is exact and needs no randomness, because it
    accumulates: `_debt` is the number of turns, 0 .. 1, that the lower bands are due.
    """

    __slots__ = ("_band", "_debt", "share")

    def __init__(self, share: float) -> None:
        self.share = share
        self._debt = 0.0
        self._band = 0  # the lower band that had the last turn of theirs

    def choose(self, mask: int) -> int:
        """The band whose turn it is; nothing changes until `note_taken`."""
        lower = mask & (mask - 1)
        if not lower or self._debt + self.share < 1.0:
            return first(mask)
        after = lower >> (self._band + 1) << (self._band + 1)
        return first(after or lower)

    def note_taken(self, mask: int, band: int) -> None:
        """A message of `band` was handed out while `mask` waited."""
        if mask & (mask - 1):
            self._debt += self.share
            if band != first(mask):
                self._debt -= 1.0
                self._band = band
