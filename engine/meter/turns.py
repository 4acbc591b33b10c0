"""What is known of each of many, in parts of which each record tells one anew: all of them within REFRESH records."""

from __future__ import annotations

from typing import Generic, TypeVar

from engine.schemas.meter import REFRESH

K = TypeVar("K")
V = TypeVar("V")

_SPREAD = 2_654_435_761  # Knuth's multiplicative hash: addresses lie in steps of one size


class Turns(Generic[K, V]):
    """A table by identity. Invariant: what is known of a key is in the part that `_part` names."""

    def __init__(self) -> None:
        self._parts: list[dict[K, V]] = [{} for _ in range(REFRESH)]

    def _part(self, key: K) -> dict[K, V]:
        return self._parts[((id(key) >> 4) * _SPREAD >> 16) % REFRESH]

    def get(self, key: K) -> V | None:
        return self._part(key).get(key)

    def put(self, key: K, value: V) -> None:
        self._part(key)[key] = value

    def discard(self, key: K) -> None:
        self._part(key).pop(key, None)

    def due(self, records: range) -> set[K]:
        """The keys whose turn is in one of the records of these numbers."""
        return {key for number in records[:REFRESH] for key in self._parts[number % REFRESH]}
