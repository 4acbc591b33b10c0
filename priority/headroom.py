"""Headroom: how many slots heavy tenants must leave free for the others.

Fair queueing orders waiting messages; it can't take back a slot from a long-running handler. So a tenant at its fair
share that still has a backlog (a heavy one) may take another slot only while all heavy tenants together hold fewer than

    W - (a + 2 sqrt(a) + 1)  =  W - (sqrt(a) + 1)^2

of the W slots, where a is the moving average of the slots that light tenants (all others) hold. Arrivals of many
independent tenants are close to Poisson: the number of their messages in flight has mean a and deviation sqrt(a), so
two deviations and one slot above the mean nearly always leave a light tenant a free slot.

Up to its fair share, max(1, floor(W w / sum w)), a tenant is never held up: without that term ten busy tenants would
get a third of their due. Nor is a tenant held up while it has no more than its part, by weight, of the slots that all
heavy tenants may have: a light tenant with two messages at once counts as heavy for that moment, and must not wait for
one that holds ten times as many (measured: without this term, a hot tenant raised the victims' p99 to 1.39 times its
value without a hot tenant; with this term, to 1.05 times).

If no other tenant is active, or was a moment ago, there is none to leave room for: a lone tenant uses all of W.
"""

from __future__ import annotations

import math

SECOND = 1_000_000_000
TAU = SECOND
"""The time constant (ns) of averages of the number of messages in flight."""
_SPAN = TAU // 16
_STEP = TAU // 500
LINGER = 5 * TAU
"""How long (ns) a tenant without messages still counts as active."""
_NOBODY = 0.001  # an average below this counts as zero


class Average:
    """A moving average of a count over time: exact over spans of up to TAU / 16, which are then weighted exponentially.

    Invariant: `value` is the average up to `_since`, `_area` the integral of the count from there to `at`.
    """

    __slots__ = ("_area", "_since", "at", "count", "value")

    def __init__(self, now: int) -> None:
        self.value = 0.0
        self.count = 0
        self.at = self._since = now
        self._area = 0

    def move(self, by: int, now: int) -> None:
        """The count changes by `by` at `now`, ns."""
        if now - self.at > _SPAN:  # unchanged for long
            self.read(now)
        else:
            self._area += self.count * (now - self.at)
            self.at = now
            if now - self._since > _SPAN:
                self._fold(now)
        self.count += by

    def read(self, now: int) -> float:
        """The average at `now`, ns; recomputed when a step has passed since the last time."""
        if now - self.at < _STEP:
            return self.value
        if self.at > self._since:
            self._fold(self.at)
        if self.count or self.value > _NOBODY:
            self.value = self.count + (self.value - self.count) * math.exp((self.at - now) / TAU)
        self.at = self._since = now
        return self.value

    def add(self, value: float, now: int) -> None:
        """Add the average of a tenant that joins, or subtract that of one that leaves."""
        self.value = max(0.0, self.read(now) + value)

    def _fold(self, now: int) -> None:
        span = now - self._since
        mean = self._area / span
        self.value = mean + (self.value - mean) * math.exp(-span / TAU)
        self._since, self._area = now, 0


def room(average: float) -> float:
    """The slots to leave free for light tenants that hold `average` of them."""
    return (math.sqrt(average) + 1.0) ** 2


def opens_in(average: float, count: int, held: float, slots: int) -> int | None:
    """The time (ns) until `held + room(average) < slots` holds, as the average falls towards `count` and nothing else
    changes; None: never.
    """
    free = slots - held
    if free <= 1:
        return None
    goal = (math.sqrt(free) - 1.0) ** 2
    if average < goal:
        return 0
    if count >= goal:
        return None
    return math.ceil(TAU * math.log((average - count) / (goal - count)))
