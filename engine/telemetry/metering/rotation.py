"""Rotation over many keys. Their known values are divided into parts; each record refreshes one part, so that all are
refreshed within REFRESH records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from evenlane.engine.core.records.meter_record import REFRESH

if TYPE_CHECKING:
    from evenlane.engine.core.records.meter_record import Block

K = TypeVar("K")
V = TypeVar("V")

_SPREAD = 2_654_435_761  # Knuth's multiplicative hash, as addresses are multiples of one step


class RotationSlot(Generic[K, V]):
    """Keys whose turn is in the same record. The value of a `silent` key doesn't change, so its row can be packed in
    advance: `block` has the rows of all silent keys, as of `revision` (of the topics' shares).

    Invariants: a key is in one of `awake` and `silent`; `block` is None whenever `silent` has changed since.
    """

    __slots__ = ("awake", "block", "revision", "silent")

    def __init__(self) -> None:
        self.awake: dict[K, V] = {}
        self.silent: dict[K, V] = {}
        self.block: Block | None = None
        self.revision = 0

    def wake(self, key: K) -> None:
        """Note that a key's row may change from now on. No effect on a key that isn't silent."""
        if key in self.silent:
            self.awake[key] = self.silent.pop(key)
            self.block = None

    def mark_silent(self, key: K) -> None:
        """Note that a key's value stays the same until `wake` or `put`. Raises KeyError for a key that isn't awake."""
        self.silent[key] = self.awake.pop(key)
        self.block = None
        if not self.awake:
            self.awake = {}  # an emptied dictionary keeps its memory


class Rotation(Generic[K, V]):
    """A table keyed by identity. Invariant: a key's value is in the part that `part` returns."""

    def __init__(self) -> None:
        self._parts: list[RotationSlot[K, V]] = [RotationSlot() for _ in range(REFRESH)]

    def part(self, key: K) -> RotationSlot[K, V]:
        return self._parts[((id(key) >> 4) * _SPREAD >> 16) % REFRESH]

    def get(self, key: K) -> V | None:
        part = self.part(key)
        known = part.awake.get(key)
        return part.silent.get(key) if known is None else known

    def put(self, key: K, value: V) -> None:
        part = self.part(key)
        part.wake(key)
        part.awake[key] = value

    def discard(self, key: K) -> None:
        part = self.part(key)
        part.wake(key)
        part.awake.pop(key, None)

    def due(self, records: range) -> list[RotationSlot[K, V]]:
        """Return the parts whose turn is in one of the records with these numbers."""
        return [self._parts[number % REFRESH] for number in records[:REFRESH]]
