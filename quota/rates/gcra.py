"""The generic cell rate algorithm: a rate limit whose whole state is one number.

A bucket is one integer `at`, the instant (ns) from which the next message conforms. A message conforms at `now` if `at
<= now`, and then advances `at` by one interval. The credit of a bucket is bounded twice:

- idle: while no message waits, at most `burst - 1` messages are saved up, so `burst` may start at once;
- late: while messages wait, a late decision (after a timer tick or a busy loop) is made up for by up to `max(burst - 1,
  1)` messages; otherwise a bucket of burst 1 would lose rate at each tick.

So any window of w seconds admits at most `rate * w + max(burst - 1, 1) + 1` messages: never more than `rate * w + burst
+ 1`, promise Q.

A rate may be divided over several buckets. Each then has the time credit of one bucket of the whole rate, and so credit
in proportion to its part of the messages: n buckets of one rate together admit `rate * w + max(burst - 1, 1) + n`,
whatever part each has at the moment (docs/adr/0019).

Source: ITU-T I.371, virtual scheduling form; a refusal that says when to come back is from governor.
"""

from __future__ import annotations

import math
from functools import lru_cache

SECOND = 1_000_000_000
NEVER = 1 << 62


class Pace:
    """The pace of a bucket: `rate` in messages per second (0.01 .. 1,000,000), `burst` in messages of `whole`, the rate
    of which this one is a part (None: it is the whole).

    The interval is in whole nanoseconds, rounded up: below 10,000 QPS that costs less than 0.01 %. `idle` and `late`
    (ns) are the bounds of the credit.
    """

    __slots__ = ("idle", "interval", "late")

    def __init__(self, rate: float, burst: int = 1, whole: float | None = None) -> None:
        self.interval = max(1, math.ceil(SECOND / rate))
        one = self.interval if whole is None else max(1, math.ceil(SECOND / whole))
        self.idle = (burst - 1) * one
        self.late = max(self.idle, one)

    def wake(self, at: int, now: int) -> int:
        """`at` when a message arrives after an idle period."""
        floor = now - self.idle
        return at if at > floor else floor

    def spend(self, at: int, now: int) -> int:
        """`at` after one message at `now`."""
        floor = now - self.late
        return (at if at > floor else floor) + self.interval

    def affords_at(self, at: int, now: int, count: int) -> int:
        """The instant from which `count` messages conform at once if none comes before; or as many as can be saved up,
        if these are fewer.
        """
        at = max(at, now - self.idle)
        return at + min(count * self.interval - self.interval, self.idle // self.interval * self.interval)

    def retune(self, at: int, now: int, before: Pace) -> int:
        """`at` of a bucket that had the pace `before`. Its debt or credit stays the same number of messages, so that an
        earlier slow rate doesn't hold up a fast one (X4), and a rising rate creates no credit (Q).
        """
        if at > now:
            return now + -(-(at - now) * self.interval // before.interval)
        saved = min(now - at, before.late)
        return now - min(saved, saved * self.interval // before.interval)


@lru_cache(4096)
def pace(rate: float, burst: int = 1, whole: float | None = None) -> Pace:
    """The pace, shared by all buckets that have it: tens of thousands of topics have few different rates."""
    return Pace(rate, burst, whole)
