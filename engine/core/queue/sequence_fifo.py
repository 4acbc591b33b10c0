"""A compact FIFO of sequences, for messages whose payloads aren't in memory."""

from __future__ import annotations

from array import array
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_COMPACT = 4096  # taken entries are removed from the front of a FIFO in pieces of this many


class SequenceFifo:
    """A FIFO of sequences at 8 bytes each.

    Invariant: the entries before `_cursor` are taken and wait to be removed; a removal per entry would be O(length).
    """

    __slots__ = ("_cursor", "_items")

    def __init__(self) -> None:
        self._items = array("Q")
        self._cursor = 0

    def __bool__(self) -> bool:
        return len(self) > 0

    def __len__(self) -> int:
        return len(self._items) - self._cursor

    def __iter__(self) -> Iterator[int]:
        return islice(self._items, self._cursor, None)

    @property
    def head(self) -> int:
        """The next sequence; raises IndexError if there is none."""
        return self._items[self._cursor]

    def append(self, sequence: int) -> None:
        self._items.append(sequence)

    def extend(self, sequences: list[int]) -> None:
        self._items.extend(sequences)

    def take(self, count: int) -> list[int]:
        taken = self._items[self._cursor : self._cursor + count].tolist()
        self._cursor += len(taken)
        if self._cursor == len(self._items):
            self._items, self._cursor = array("Q"), 0
        elif self._cursor >= _COMPACT:
            del self._items[: self._cursor]
            self._cursor = 0
        return taken

    def prepend(self, sequences: list[int]) -> None:
        self._items[: self._cursor] = array("Q", sequences)
        self._cursor = 0

    def clear(self) -> None:
        self._items, self._cursor = array("Q"), 0
