"""Rate limits by brute force: every admission is kept and every window looked at. No bucket, no state to get wrong.

A limit allows at most `rate * w + burst` messages in any closed window of w (network calculus: an arrival curve
with a burst). Seen from the next message: for each earlier one, the window from it to now must hold.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction

SECOND = 1_000_000_000


def excess(due: Iterable[Fraction | float]) -> Fraction | float:
    """The most messages that any closed window holds beyond what was due in it.

    `due`: for each admission in order, what was due in all by its instant. A rate that changes is a bent line.
    """
    worst: Fraction | float = 0
    least: Fraction | float | None = None
    for count, by_then in enumerate(due):
        beyond = count - by_then
        least = beyond if least is None else min(least, beyond)
        worst = max(worst, beyond - least + 1)
    return worst


def steady(rate: float) -> Callable[[int], Fraction]:
    """What is due at `rate` messages per second, exactly."""
    each = Fraction(rate) / SECOND
    return lambda at: each * at


class Limiter:
    """A limit of one message each `interval` ns and `burst` at once."""

    def __init__(self, interval: int, burst: int) -> None:
        self.interval = interval
        self.burst = burst
        self.times: list[int] = []

    def earliest(self, now: int) -> int:
        """The first instant, ns, not before `now`, at which one more message breaks no window."""
        count = len(self.times)
        bounds = [at + (count - n + 1 - self.burst) * self.interval for n, at in enumerate(self.times)]
        return max([now, *bounds])

    def admit(self, now: int) -> bool:
        if self.earliest(now) > now:
            return False
        self.times.append(now)
        return True


class Changing:
    """What is due by an instant under a rate that changes."""

    def __init__(self, rate: float, now: int) -> None:
        self._pieces = [(now, Fraction(0), Fraction(rate) / SECOND)]

    def change(self, rate: float, now: int, extra: int = 0) -> None:
        """`extra` messages are due at once, for the change itself."""
        self._pieces.append((now, self(now) + extra, Fraction(rate) / SECOND))

    def __call__(self, at: int) -> Fraction:
        since, due, each = next(piece for piece in reversed(self._pieces) if piece[0] <= at)
        return due + each * (at - since)
