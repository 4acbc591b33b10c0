"""Delayed messages as their owner keeps them: sequences by due time, for each subject a heap of its own. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEQUENCE_BITS = 36
_SEQUENCE = (1 << _SEQUENCE_BITS) - 1
_TICK = 10_000_000  # ns; due times are kept in steps of 10 ms, so that an entry fits a 32-byte integer


class DelayHeap:
    """Times are unix ns by the store's clock."""

    def __init__(self) -> None:
        self._heaps: dict[bytes, list[int]] = {}
        self._next: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def add(self, subject: bytes, sequence: int, due: int) -> None:
        """It is never released before it is due, and at most a tick later."""
        tick = -(-due // _TICK)
        heap = self._heaps.setdefault(subject, [])
        if not heap or tick < heap[0] >> _SEQUENCE_BITS:
            heappush(self._next, (tick, subject))
        heappush(heap, tick << _SEQUENCE_BITS | sequence)

    def release(self, now: int, limit: int) -> Iterator[tuple[bytes, int]]:
        """Up to `limit` messages whose time has come, as (subject, sequence); they are forgotten here."""
        tick = now // _TICK
        while limit > 0 and self._next and self._next[0][0] <= tick:
            due, subject = heappop(self._next)
            heap = self._heaps.get(subject)
            if not heap or heap[0] >> _SEQUENCE_BITS != due:
                continue  # another message became the next one after this was noted
            while heap and limit > 0 and heap[0] >> _SEQUENCE_BITS <= tick:
                yield subject, heappop(heap) & _SEQUENCE
                limit -= 1
            if heap:
                heappush(self._next, (heap[0] >> _SEQUENCE_BITS, subject))
            else:
                self._heaps.pop(subject, None)

    def remove(self, subject: bytes, last: int) -> list[int]:
        """Forget those of this subject up to the sequence `last`; which they were."""
        heap = self._heaps.get(subject, [])
        self._keep(subject, [entry for entry in heap if entry & _SEQUENCE > last])
        return [sequence for entry in heap if (sequence := entry & _SEQUENCE) <= last]

    def cancel(self, subject: bytes, sequence: int) -> bool:
        """Forget one message; whether it was there. Takes as long as there are messages of the subject."""
        heap = self._heaps.get(subject, [])
        kept = [entry for entry in heap if entry & _SEQUENCE != sequence]
        if len(kept) == len(heap):
            return False
        self._keep(subject, kept)
        return True

    def _keep(self, subject: bytes, entries: list[int]) -> None:
        self._heaps.pop(subject, None)
        if entries:
            heapify(entries)
            self._heaps[subject] = entries
            heappush(self._next, (entries[0] >> _SEQUENCE_BITS, subject))

    def next_due(self) -> int | None:
        """When the next one is due."""
        while self._next:
            due, subject = self._next[0]
            heap = self._heaps.get(subject)
            if heap and heap[0] >> _SEQUENCE_BITS == due:
                return due * _TICK
            heappop(self._next)
        return None

    def sequences(self) -> Iterator[tuple[bytes, Iterator[int]]]:
        """By subject, of all that aren't due yet."""
        for subject, heap in self._heaps.items():
            yield subject, (entry & _SEQUENCE for entry in heap)

    def of(self, subject: bytes) -> tuple[int, int]:
        """How many messages of this subject aren't due yet, and when the next one is; (0, 0) if none."""
        heap = self._heaps.get(subject)
        return (len(heap), (heap[0] >> _SEQUENCE_BITS) * _TICK) if heap else (0, 0)
