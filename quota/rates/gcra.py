"""The generic cell rate algorithm: a rate limit whose whole state is one number.

A bucket is one integer `at`, the instant (ns) from which the next message conforms. A message conforms at `now` if
`at <= now`, and then moves `at` on by one interval. What a bucket forgoes is bounded twice:

- idle: while nobody asks, at most `burst - 1` messages are saved up, so `burst` may come at once;
- late: while somebody waits, an answer that comes late (a timer tick, a busy loop) is forgiven up to
  `max(burst - 1, 1)` messages, or else a bucket of burst 1 would lose its rate to each tick.

So any window of w seconds admits at most `rate * w + max(burst - 1, 1) + 1` messages: never more than
`rate * w + burst + 1`, promise Q.

A rate may be shared out over several buckets. Each then forgoes as long as one bucket of the whole rate would, and so
by its part of the messages: n buckets of one rate admit `rate * w + max(burst - 1, 1) + n` together, whichever part
each has at the moment (docs/adr/0019).

Source: ITU-T I.371, virtual scheduling form; the refusal that says when to come back is governor's.
"""

from __future__ import annotations

import math
from functools import lru_cache

SECOND = 1_000_000_000
NEVER = 1 << 62


class Pace:
    """How fast a bucket goes: `rate` in messages per second (0.01 .. 1,000,000), `burst` in messages of `whole`, the
    rate that this one is a part of; left out: it is the whole.

    The interval is whole nanoseconds, rounded up: below 10,000 QPS that costs less than 0.01 %.
    """

    __slots__ = ("idle", "interval", "late")

    def __init__(self, rate: float, burst: int = 1, whole: float | None = None) -> None:
        self.interval = max(1, math.ceil(SECOND / rate))
        one = self.interval if whole is None else max(1, math.ceil(SECOND / whole))
        self.idle = (burst - 1) * one
        self.late = max(self.idle, one)

    def woken(self, at: int, now: int) -> int:
        """`at` when somebody asks again after nobody did."""
        floor = now - self.idle
        return at if at > floor else floor

    def spent(self, at: int, now: int) -> int:
        """`at` after one message at `now`."""
        floor = now - self.late
        return (at if at > floor else floor) + self.interval

    def retuned(self, at: int, now: int, before: Pace) -> int:
        """`at` of a bucket that had the pace `before`: what it owes or has saved up stays the same number of messages.
        So what was slow before doesn't hold up what is fast now (X4), and a rate that grows mints nothing (Q).
        """
        if at > now:
            return now + -(-(at - now) * self.interval // before.interval)
        saved = min(now - at, before.late)
        return now - min(saved, saved * self.interval // before.interval)


@lru_cache(4096)
def pace(rate: float, burst: int = 1, whole: float | None = None) -> Pace:
    """The pace, one object for all buckets that share it: tens of thousands of topics have few different rates."""
    return Pace(rate, burst, whole)
