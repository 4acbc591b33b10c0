"""Backlogs come in slowly while other feeds are made, or are about to be.

A catch-up takes most of what the event loop and the server have, and what a take-over asks, or what is put now, would
wait for it. Meanwhile each backlog has the first messages that its first pull brought, and all backlogs of the node
together go on by small turns, so that none of them stands still.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from engine.stores.jetstream.budget import FeedBudget

_QUIET_S = 0.4  # after the last feed was made
_MOST_S = 3.0  # after the hold began
_EXPECTED_S = 6.0  # after an expectation began
_STEP_S = 0.05  # from one small turn to the next


class BacklogHold:
    """Of one store. What is expected may not come, so an expectation counts for 6 s after it began. Invariant,
    until `close`: the budget is held while `_timer` runs.
    """

    def __init__(self, budget: FeedBudget, loop: asyncio.AbstractEventLoop) -> None:
        self._budget, self._loop = budget, loop
        self._is_expecting = False
        self._timer: asyncio.TimerHandle | None = None
        self._first = self._last = self._expected_until = 0.0  # the loop's time, s

    def made(self) -> None:
        """A feed is made: others may follow."""
        self._last = self._loop.time()
        self._begin()

    def expect(self, *, more: bool) -> None:
        """Whether feeds are to be made of what others still serve."""
        if more == self._is_expecting:
            return
        self._is_expecting = more
        now = self._loop.time()
        if more:
            self._expected_until = now + _EXPECTED_S
            self._begin()
        else:
            self._first = now  # the last of them have a quiet time, too

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

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
