"""The generic cell rate algorithm: a rate limit whose whole state is one number.

A bucket is one integer `at`, the instant (ns) from which the next message conforms. A message conforms at `now` if
`at <= now`, and then moves `at` on by one interval. What a bucket forgoes is bounded twice:

- idle: while nobody asks, at most `burst - 1` messages are saved up, so `burst` may come at once;
- late: while somebody waits, an answer that comes late (a timer tick, a busy loop) is forgiven up to
  `max(burst - 1, 1)` messages, or else a bucket of burst 1 would lose its rate to each tick.

So any window of w seconds admits at most `rate * w + max(burst - 1, 1) + 1` messages: never more than
`rate * w + burst + 1`, promise Q.

Source: ITU-T I.371, virtual scheduling form; the refusal that says when to come back is governor's.
"""

from __future__ import annotations

import math
from functools import lru_cache

SECOND = 1_000_000_000
NEVER = 1 << 62


class Pace:
    """How fast a bucket goes: `rate` in messages per second (0.01 .. 1,000,000), `burst` in messages.

    The interval is whole nanoseconds, rounded up: below 10,000 QPS that costs less than 0.01 %.
    """

    __slots__ = ("idle", "interval", "late")

    def __init__(self, rate: float, burst: int = 1) -> None:
        self.interval = max(1, math.ceil(SECOND / rate))
        self.idle = (burst - 1) * self.interval
        self.late = max(self.idle, self.interval)

    def woken(self, at: int, now: int) -> int:
        """`at` when somebody asks again after nobody did."""
        floor = now - self.idle
        return at if at > floor else floor

    def spent(self, at: int, now: int) -> int:
        """`at` after one message at `now`."""
        floor = now - self.late
        return (at if at > floor else floor) + self.interval

    def retuned(self, at: int, now: int) -> int:
        """`at` of a bucket that had another pace: what was slow before doesn't hold up what is fast now (X4)."""
        ceiling = now + self.interval
        return at if at < ceiling else ceiling


@lru_cache(4096)
def pace(rate: float, burst: int = 1) -> Pace:
    """The pace, one object for all buckets that share it: tens of thousands of topics have few different rates."""
    return Pace(rate, burst)
