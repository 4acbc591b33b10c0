"""Throttles backlogs while other feeds are being created, or are about to be.

A catch-up takes most of the event loop's and the server's time; the requests of a takeover, and new messages, would
wait for it. While backlogs are throttled, each has the messages of its first pull, and the node grants one small turn
at a time, so every backlog keeps moving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget

_QUIET_S = 0.4  # after the last feed was created
_MOST_S = 3.0  # after throttling began
_EXPECTED_S = 6.0  # after an expectation began
_STEP_S = 0.05  # from one small turn to the next


class BacklogThrottle:
    """Throttles the backlogs of one store. An expected feed may never come, so an expectation ends after 6 s.

    Invariant, until `close`: the budget is held exactly while `_timer` runs.
    """

    def __init__(self, budget: FeedBudget, loop: asyncio.AbstractEventLoop) -> None:
        self._budget, self._loop = budget, loop
        self._is_expecting = False
        self._timer: asyncio.TimerHandle | None = None
        self._first = self._last = self._expected_until = 0.0  # the loop's time, s

    def on_created(self) -> None:
        """A feed has been created; others may follow."""
        self._last = self._loop.time()
        self._begin()

    def expect(self, *, more: bool) -> None:
        """Say whether feeds will follow for partitions that other nodes still serve."""
        if more == self._is_expecting:
            return
        self._is_expecting = more
        now = self._loop.time()
        if more:
            self._expected_until = now + _EXPECTED_S
            self._begin()
        else:
            self._first = now  # the last feed gets its quiet time, too

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        if self._timer is None:
            self._first = self._loop.time()
            self._budget.hold()
            self._wait()

    def _wait(self) -> None:
        self._timer = self._loop.call_later(_STEP_S, self._step)

    def _step(self) -> None:
        if self._loop.time() < self._due():
            self._budget.pass_one()
            self._wait()
        else:
            self._timer = None
            self._budget.release()

    def _due(self) -> float:
        quiet = min(self._last + _QUIET_S, self._first + _MOST_S)
        return max(quiet, self._expected_until) if self._is_expecting else quiet
