"""What a node could use of a topic, measured each second. Pure.

A node whose part holds a topic up could use what it hands out and what waits, within a second. Any other could use what
it hands out and a little more: arrivals of many senders vary by their square root. That something has to wait for the
bucket in the instant of looking says little (at three quarters of the rate it is so three times of four); the part
holds a topic up if nearly all of it is used as well.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

_SECOND = 1_000_000_000
_LEAST = _SECOND // 2  # over less than that no rate is measured
_NEARLY_ALL = 0.9


class Seen(NamedTuple):
    """A topic on a node: `spent` messages were charged so far, something `waits` for its bucket; its quota is `qps`, of
    which the node may use `part` at the moment, and owns `own`.
    """

    spent: int
    waits: bool
    qps: float
    own: float
    part: float


class _Look(NamedTuple):
    """At instant `at` (ns), `rate` messages a second had been handed out since the look before, if that is known."""

    seen: Seen
    at: int
    rate: float | None
    allowed: float  # messages a second, of which `rate` was had


class Demand:
    """By project. `waiting()` tells how many messages wait, and what their groups may have at the most, msg/s."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}

    def only(self, projects: set[str]) -> None:
        """Forget all others."""
        for gone in self._looks.keys() - projects:
            del self._looks[gone]

    def want(self, project: str, seen: Seen, now: int, waiting: Callable[[], tuple[int, float]]) -> float:
        """The part of the topic that the node could use."""
        look = self._look(project, seen, now)
        rate = look.rate
        if not seen.waits:
            return seen.own if rate is None else min(1.0, (rate + sqrt(rate)) / seen.qps)
        if rate is not None and rate + 1 < _NEARLY_ALL * look.allowed:
            return min(1.0, (rate + sqrt(rate)) / seen.qps)
        count, most = waiting()
        rate = rate or 0.0
        return min(1.0, min(rate + count, max(rate, most)) / seen.qps)

    def _look(self, project: str, seen: Seen, now: int) -> _Look:
        """What is known since an earlier look; nothing at the first one under this quota, since another one says
        nothing of what could be used now.
        """
        last = self._looks.get(project)
        allowed = seen.part * seen.qps
        if last is None or last.seen.qps != seen.qps:
            look = _Look(seen, now, None, allowed)
        elif now - last.at < _LEAST:
            return last
        else:
            rate = max(0.0, (seen.spent - last.seen.spent) * _SECOND / (now - last.at))
            look = _Look(seen, now, rate, min(allowed, last.seen.part * seen.qps))
        self._looks[project] = look
        return look
