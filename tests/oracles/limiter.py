"""An oracle of rate limits by brute force: it keeps every admission and checks every window.

A limit allows at most `rate * w + burst` messages in any closed window of w (network calculus: an arrival curve
with a burst). For the next message: the window from each earlier message to now must hold.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction

SECOND = 1_000_000_000


def excess(due: Iterable[Fraction | float]) -> Fraction | float:
    """The most messages that any closed window has beyond the amount due in it.

    `due`: for each admission in order, the total amount due by its time. A changing rate is a bent line.
    """
    worst: Fraction | float = 0
    least: Fraction | float | None = None
    for count, by_then in enumerate(due):
        beyond = count - by_then
        least = beyond if least is None else min(least, beyond)
        worst = max(worst, beyond - least + 1)
    return worst


def steady(rate: float) -> Callable[[int], Fraction]:
    """The exact amount due at `rate` messages per second, as a function of time."""
    each = Fraction(rate) / SECOND
    return lambda at: each * at


class Limiter:
    """A limit of one message each `interval` ns and `burst` at once."""

    def __init__(self, interval: int, burst: int) -> None:
        self.interval = interval
        self.burst = burst
        self.times: list[int] = []

    def earliest(self, now: int) -> int:
        """The first time (ns), not before `now`, at which one more message breaks no window."""
        count = len(self.times)
        bounds = [at + (count - n + 1 - self.burst) * self.interval for n, at in enumerate(self.times)]
        return max([now, *bounds])

    def admit(self, now: int) -> bool:
        if self.earliest(now) > now:
            return False
        self.times.append(now)
        return True


class Changing:
    """The amount due by a time, under a rate that changes."""

    def __init__(self, rate: float, now: int) -> None:
        self._pieces = [(now, Fraction(0), Fraction(rate) / SECOND)]

    def change(self, rate: float, now: int, extra: int = 0) -> None:
        """Change the rate. `extra` messages are due at once."""
        self._pieces.append((now, self(now) + extra, Fraction(rate) / SECOND))

    def __call__(self, at: int) -> Fraction:
        since, due, each = next(piece for piece in reversed(self._pieces) if piece[0] <= at)
        return due + each * (at - since)
