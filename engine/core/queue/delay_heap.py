"""Keeps the delayed messages of a delay stream: one heap of sequences per subject, ordered by due time. Pure."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEQUENCE_BITS = 36
_SEQUENCE = (1 << _SEQUENCE_BITS) - 1
_TICK = 10_000_000  # ns; due times are kept in steps of 10 ms, so that an entry fits a 32-byte integer


class DelayHeap:
    """Delayed messages by subject and due time. All times are unix ns by the store's clock.

    Invariant: `_next` has an entry (tick, subject) for the earliest message of each subject. It may have stale ones,
    too: an entry whose tick isn't that of the subject's earliest message is ignored.
    """

    def __init__(self) -> None:
        self._heaps: dict[bytes, list[int]] = {}
        self._next: list[tuple[int, bytes]] = []

    def __bool__(self) -> bool:
        return len(self) > 0

    def __len__(self) -> int:
        return sum(map(len, self._heaps.values()))

    def add(self, subject: bytes, sequence: int, due: int) -> None:
        """Add a message. It is released no earlier than `due`, and at most one tick (10 ms) later."""
        tick = -(-due // _TICK)
        heap = self._heaps.setdefault(subject, [])
        if not heap or tick < heap[0] >> _SEQUENCE_BITS:
            heappush(self._next, (tick, subject))
        heappush(heap, tick << _SEQUENCE_BITS | sequence)

    def release(self, now: int, limit: int) -> Iterator[tuple[bytes, int]]:
        """Remove and yield up to `limit` messages that are due at `now`, as (subject, sequence)."""
        tick = now // _TICK
        while limit > 0 and self._next and self._next[0][0] <= tick:
            due, subject = heappop(self._next)
            heap = self._heaps.get(subject)
            if not heap or heap[0] >> _SEQUENCE_BITS != due:
                continue  # a stale entry: another message of the subject is the earliest now
            while heap and limit > 0 and heap[0] >> _SEQUENCE_BITS <= tick:
                yield subject, heappop(heap) & _SEQUENCE
                limit -= 1
            if heap:
                heappush(self._next, (heap[0] >> _SEQUENCE_BITS, subject))
            else:
                self._heaps.pop(subject, None)

    def remove(self, subject: bytes, last: int) -> list[int]:
        """Remove the messages of a subject up to the sequence `last`, and return their sequences."""
        heap = self._heaps.get(subject, [])
        self._keep(subject, [entry for entry in heap if entry & _SEQUENCE > last])
        return [sequence for entry in heap if (sequence := entry & _SEQUENCE) <= last]

    def cancel(self, subject: bytes, sequence: int) -> bool:
        """Remove one message, and return whether it was there. O(messages of the subject)."""
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
        """The due time of the earliest message; None if there is none."""
        while self._next:
            due, subject = self._next[0]
            heap = self._heaps.get(subject)
            if heap and heap[0] >> _SEQUENCE_BITS == due:
                return due * _TICK
            heappop(self._next)
        return None

    def sequences(self) -> Iterator[tuple[bytes, Iterator[int]]]:
        """The sequences of all messages that aren't due yet, by subject."""
        for subject, heap in self._heaps.items():
            yield subject, (entry & _SEQUENCE for entry in heap)

    def count_delayed(self, subject: bytes) -> tuple[int, int]:
        """The number of messages of a subject that aren't due yet, and the earliest due time; (0, 0) if
        there are none.
        """
        heap = self._heaps.get(subject)
        return (len(heap), (heap[0] >> _SEQUENCE_BITS) * _TICK) if heap else (0, 0)
