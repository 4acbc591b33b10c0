"""A circuit breaker (M. Nygard, Release It!): who fails again and again is left alone, ever longer, and then tried with
one request. Pure: the time is an argument, monotonic ns.

    CLOSED  --threshold failures in a row-->  OPEN
    OPEN    --its pause is over, a request begins-->  HALF_OPEN
    HALF_OPEN  --it succeeds-->  CLOSED
    HALF_OPEN  --it fails-->  OPEN, for `factor` times as long
    HALF_OPEN  --no verdict-->  OPEN, and the next one may begin
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

_SECOND = 1_000_000_000


class State(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"  # one request is under way, and decides


@dataclass(frozen=True, slots=True)
class Rules:
    """Pauses in ns."""

    threshold: int = 5
    first: int = _SECOND
    factor: int = 2
    most: int = 60 * _SECOND


class Breaker:
    """Ask `wait`; if it is 0, `begin`, and tell with its token how it ended: `succeeded`, `failed`, or `abandoned`.

    What began under an earlier state says nothing about the present one, so its token is void.
    """

    __slots__ = ("_failures", "_pause", "_rules", "_term", "_until", "state")

    def __init__(self, rules: Rules = Rules()) -> None:
        self._rules = rules
        self.state = State.CLOSED
        self._failures = 0  # in a row
        self._pause = 0  # the present or last one
        self._until = 0
        self._term = 0  # a token is the term it was given out in

    def wait(self, now: int) -> int:
        """How long to leave it alone, ns; 0 if a request may begin."""
        if self.state is State.CLOSED:
            return 0
        if self.state is State.HALF_OPEN:
            return self._rules.first
        return max(0, self._until - now)

    def begin(self, now: int) -> int:
        """A request begins; its token. Raises ValueError if it has to wait."""
        if self.wait(now):
            raise ValueError("nothing may begin while the breaker is open: ask wait() first")
        if self.state is State.OPEN:
            self._turn(State.HALF_OPEN)
        return self._term

    def succeeded(self, token: int) -> None:
        if token != self._term:
            return
        self._failures = 0
        if self.state is State.HALF_OPEN:
            self._pause = 0
            self._turn(State.CLOSED)

    def failed(self, token: int, now: int) -> None:
        if token != self._term:
            return
        self._failures += 1
        if self.state is State.HALF_OPEN or self._failures >= self._rules.threshold:
            self._pause = min(self._rules.most, self._pause * self._rules.factor or self._rules.first)
            self._until = now + self._pause
            self._turn(State.OPEN)

    def abandoned(self, token: int) -> None:
        """It was called off, or its end tells nothing: the next one decides."""
        if token == self._term and self.state is State.HALF_OPEN:
            self._turn(State.OPEN)

    def _turn(self, state: State) -> None:
        self.state = state
        self._term += 1
