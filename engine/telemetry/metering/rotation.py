"""What is known of each of many, in parts of which each record tells one anew: all of them within REFRESH records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from evenlane.engine.core.wire.meter_record import REFRESH

if TYPE_CHECKING:
    from evenlane.engine.core.wire.meter_record import Block

K = TypeVar("K")
V = TypeVar("V")

_SPREAD = 2_654_435_761  # Knuth's multiplicative hash: addresses lie in steps of one size


class Part(Generic[K, V]):
    """Those whose turn is in the same record. What is known of a `silent` key doesn't change, so its row can be packed
    ahead: `block` has the rows of all silent keys, as of `revision` (of the topics' shares).

    Invariants: a key is in one of `awake` and `silent`; `block` is None whenever `silent` has changed since.
    """

    __slots__ = ("awake", "block", "revision", "silent")

    def __init__(self) -> None:
        self.awake: dict[K, V] = {}
        self.silent: dict[K, V] = {}
        self.block: Block | None = None
        self.revision = 0

    def wake(self, key: K) -> None:
        """Its row may change from now on. Harmless for a key that isn't silent."""
        if key in self.silent:
            self.awake[key] = self.silent.pop(key)
            self.block = None

    def silence(self, key: K) -> None:
        """What is known of it stays as it is until `wake`, or a `put`. Raises KeyError for a key that isn't awake."""
        self.silent[key] = self.awake.pop(key)
        self.block = None
        if not self.awake:
            self.awake = {}  # a dictionary that is emptied keeps its room


class Rotation(Generic[K, V]):
    """A table by identity. Invariant: what is known of a key is in the part that `part` names."""

    def __init__(self) -> None:
        self._parts: list[Part[K, V]] = [Part() for _ in range(REFRESH)]

    def part(self, key: K) -> Part[K, V]:
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

    def due(self, records: range) -> list[Part[K, V]]:
        """The parts whose turn is in one of the records of these numbers."""
        return [self._parts[number % REFRESH] for number in records[:REFRESH]]
