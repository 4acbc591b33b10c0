"""Backlogs come in slowly while other feeds are made, or are about to be.

A catch-up takes most of what the event loop and the server have, and what a take-over asks, or what is put now, would
wait for it. Meanwhile each backlog has the first messages that its first pull brought, and all backlogs of the node
together go on by small turns, so that none of them stands still.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.stores.jetstream.budget import FeedBudget

_QUIET_S = 0.4  # after the last feed was made
_MOST_S = 3.0  # after the first
_STEP_S = 0.05  # from one small turn to the next


class BacklogHold:
    """Of one store; `expected_s` after the first feed it ends even if more are expected, since what is expected may not
    come. Invariant: the budget is held while `_timer` runs.
    """

    def __init__(self, budget: FeedBudget, *, expected_s: float = 6.0) -> None:
        self._budget, self._expected_s = budget, expected_s
        self._is_expecting = False
        self._timer: asyncio.TimerHandle | None = None
        self._first = self._last = 0.0  # when feeds were made since backlogs were slowed; the loop's time, s

    def made(self) -> None:
        """A feed is made: others may follow."""
        self._last = asyncio.get_running_loop().time()
        self._begin()

    def expect(self, *, more: bool) -> None:
        """Whether feeds are to be made of what others still serve."""
        self._is_expecting = more
        if more:
            self._begin()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin(self) -> None:
        if self._timer is None:
            self._first = asyncio.get_running_loop().time()
            self._budget.hold()
            self._wait()

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_STEP_S, self._step)

    def _step(self) -> None:
        if asyncio.get_running_loop().time() < self._due():
            self._budget.pass_one()
            self._wait()
        else:
            self._timer = None
            self._budget.release()

    def _due(self) -> float:
        if self._is_expecting:
            return self._first + self._expected_s
        return min(self._last + _QUIET_S, self._first + _MOST_S)
