"""Limits the bytes that may be in transit to a node at once, over all its feeds.

The server cuts a connection with 64 MB waiting to be sent. Therefore each feed always has a small pull open, all of
them together at most half of the budget. A feed with more to fetch takes a turn with a large pull from the other half,
of which only a few megabytes are used at once. A message above the small size ends the small pull with a status that
says so, and waits for a turn.

A patient feed, which delivers a backlog, gets a turn only when no other feed waits for one. While patient feeds are
held, only `pass_one` grants them a turn, a small one: the requests of a takeover must not wait behind megabytes that
aren't needed soon.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SMALLEST = 4 << 10
_LARGEST_SMALL = 128 << 10
_PATIENT = 256 << 10  # per turn of a patient feed: its messages are taken in at one go, and all else waits
_HELD = 32 << 10  # per turn of a patient feed while patient feeds are held
_TURNS = 2 << 20  # over all turns: more wouldn't arrive sooner, and other requests would wait for a busy server


class FeedBudget:
    """The budget of one store, in bytes: `total`, and `largest`, the largest message with its subjects.

    Invariants:
    - `turns - _free` is the size of all turns that are granted and not given back.
    - `_passes` is set only while patient feeds are held: one of them may start nevertheless.
    - While `_is_serving` is set, `_serve` is on the stack; calls to it return at once, because the loop goes on.
    """

    def __init__(self, total: int, largest: int) -> None:
        self.total, self.largest = max(total, 2 * largest), largest
        self.turn = largest
        self._feeds = 0
        self.turns = self._free = min(self.total // 2, max(_TURNS, 2 * self.turn))
        self._waiting: deque[Callable[[], bool]] = deque()
        self._patient: deque[Callable[[], bool]] = deque()
        self._held = self._passes = False
        self._is_serving = False

    @property
    def small(self) -> int:
        """The size (bytes) of the pull that each feed keeps open."""
        return min(_LARGEST_SMALL, max(_SMALLEST, self.total // 2 // max(1, self._feeds)))

    @property
    def patient_turn(self) -> int:
        """The size (bytes) of a patient feed's pull in its turn."""
        return self.held_turn if self._held else min(self.largest, _PATIENT)

    @property
    def held_turn(self) -> int:
        """The size (bytes) of that pull while patient feeds are held."""
        return min(self.largest, _HELD)

    def join(self) -> None:
        self._feeds += 1

    def leave(self) -> None:
        self._feeds -= 1

    def ask(self, start: Callable[[], bool], *, patient: bool = False) -> None:
        """Call `start` when it is this feed's turn, at once if there is room. `start` returns whether it
        takes the turn.
        """
        (self._patient if patient else self._waiting).append(start)
        self._serve()

    def hold(self) -> None:
        """Grant patient feeds no turn until `release`, except by `pass_one`."""
        self._held = True

    def release(self) -> None:
        self._held = self._passes = False
        self._serve()

    def pass_one(self) -> None:
        """Grant one patient feed a small turn as soon as no other feed waits and there is room."""
        self._passes = self._held
        self._serve()

    def return_turn(self) -> None:
        """End a turn."""
        self._free += self.turn
        self._serve()

    def _serve(self) -> None:
        if self._is_serving:
            return  # the loop goes on; recursion would be one call deeper for each feed that ends at once
        self._is_serving = True
        try:
            while self._free >= self.turn and (start := self._next()) is not None:
                self._free -= self.turn
                if not start():
                    self._free += self.turn
        finally:
            self._is_serving = False

    def _next(self) -> Callable[[], bool] | None:
        if self._waiting:
            return self._waiting.popleft()
        if self._patient and (self._passes or not self._held):
            return self._start
        return None

    def _start(self) -> bool:
        """Start the next patient feed, and return whether it took its turn; it may have been closed."""
        has_taken = self._patient.popleft()()
        self._passes = self._passes and not has_taken
        return has_taken
