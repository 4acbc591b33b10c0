"""A circuit breaker (M. Nygard, Release It!): pauses an endpoint that fails repeatedly, for longer each time, and then
tries it with one request. Pure: the time is an argument, monotonic ns.

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


class BreakerState(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"  # one request is under way, and decides


@dataclass(frozen=True, slots=True)
class BreakerRules:
    """Pauses in ns."""

    threshold: int = 5
    first: int = _SECOND
    factor: int = 2
    most: int = 60 * _SECOND


class Breaker:
    """Ask `wait`; if it returns 0, call `begin`, and report the end with its token: `note_success`, `note_failure`, or
    `abandon`.

    Invariant: `_term` grows with each change of state. A token is the term in which its request began; if the state has
    changed since, the request says nothing about the present state, and its token is ignored.
    """

    __slots__ = ("_failures", "_pause", "_rules", "_term", "_until", "state")

    def __init__(self, rules: BreakerRules = BreakerRules()) -> None:
        self._rules = rules
        self.state = BreakerState.CLOSED
        self._failures = 0  # in a row
        self._pause = 0  # the present or last one, ns
        self._until = 0
        self._term = 0

    def wait(self, now: int) -> int:
        """The time (ns) until a request may begin; 0: now."""
        if self.state is BreakerState.CLOSED:
            return 0
        if self.state is BreakerState.HALF_OPEN:
            return self._rules.first
        return max(0, self._until - now)

    def begin(self, now: int) -> int:
        """Begin a request, and return its token. Raises ValueError if it has to wait."""
        if self.wait(now):
            raise ValueError("nothing may begin while the breaker is open: ask wait() first")
        if self.state is BreakerState.OPEN:
            self._turn(BreakerState.HALF_OPEN)
        return self._term

    def note_success(self, token: int) -> None:
        if token != self._term:
            return
        self._failures = 0
        if self.state is BreakerState.HALF_OPEN:
            self._pause = 0
            self._turn(BreakerState.CLOSED)

    def note_failure(self, token: int, now: int) -> None:
        if token != self._term:
            return
        self._failures += 1
        if self.state is BreakerState.HALF_OPEN or self._failures >= self._rules.threshold:
            self._pause = min(self._rules.most, self._pause * self._rules.factor or self._rules.first)
            self._until = now + self._pause
            self._turn(BreakerState.OPEN)

    def abandon(self, token: int) -> None:
        """The request was cancelled, or its end says nothing: the next one decides."""
        if token == self._term and self.state is BreakerState.HALF_OPEN:
            self._turn(BreakerState.OPEN)

    def _turn(self, state: BreakerState) -> None:
        self.state = state
        self._term += 1
