"""What a node could use of a topic, measured each second. Pure.

A node whose part holds a topic up could use what it hands out and what waits, within a second. Any other could use what
it hands out and a little more: arrivals of many senders vary by their square root. That something has to wait for the
bucket in the instant of looking says little (at three quarters of the rate it is so three times of four); the part
holds a topic up if nearly all of it is used as well. And that nothing was handed out for a second says little where the
part is about one message a second: as long as it has one, it wants that much of its own.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.scheduler.interface import Used

_SECOND = 1_000_000_000
_LEAST = _SECOND // 2  # over less than that no rate is measured
_NEARLY_ALL = 0.9


class QueueDemand(NamedTuple):
    """A topic on a node: what is `used` of its quota, `qps`, of which the node may use `part` at the moment, and owns
    `own`.
    """

    used: Used
    qps: float
    own: float
    part: float


class _Look(NamedTuple):
    """At instant `at` (ns), `rate` messages a second had been handed out since the look before, if that is known."""

    seen: QueueDemand
    at: int
    rate: float | None
    allowed: float  # messages a second, of which `rate` was had


class Demand:
    """By project. `waiting()` tells how many messages wait, and what their groups may have at the most, msg/s."""

    def __init__(self, least_ns: int = _LEAST) -> None:
        self._least = least_ns
        self._looks: dict[str, _Look] = {}

    def forget(self, project: str) -> None:
        """Nothing of it is here any more."""
        self._looks.pop(project, None)

    def is_at_rest(self, project: str) -> bool:
        """Whether nothing was handed out between the last two looks, and nothing was ready at the last one."""
        look = self._looks.get(project)
        return look is not None and look.rate == 0.0 and not look.seen.used.has

    def rested(self, project: str, until: int) -> None:
        """It was at rest until that instant (ns), without being looked at: as a look then would have found."""
        look = self._looks.get(project)
        if look is not None and look.at < until:
            self._looks[project] = look._replace(at=until)

    def want(self, project: str, seen: QueueDemand, now: int, waiting: Callable[[], tuple[int, float]]) -> float:
        """The part of the topic that the node could use."""
        look = self._look(project, seen, now)
        rate = look.rate
        if not seen.used.waits:
            return seen.own if rate is None else _using(rate, seen)
        if rate is not None and rate + 1 < _NEARLY_ALL * look.allowed:
            return _using(rate, seen)
        count, most = waiting()
        rate = rate or 0.0
        return min(1.0, min(rate + count, max(rate, most)) / seen.qps)

    def _look(self, project: str, seen: QueueDemand, now: int) -> _Look:
        """What is known since an earlier look; nothing at the first one under this quota, since another one says
        nothing of what could be used now.
        """
        last = self._looks.get(project)
        allowed = seen.part * seen.qps
        if last is None or last.seen.qps != seen.qps:
            look = _Look(seen, now, None, allowed)
        elif now - last.at < self._least:
            return last
        else:
            rate = max(0.0, (seen.used.spent - last.seen.used.spent) * _SECOND / (now - last.at))
            look = _Look(seen, now, rate, min(allowed, last.seen.part * seen.qps))
        self._looks[project] = look
        return look


def _using(rate: float, seen: QueueDemand) -> float:
    """Of a topic that its part doesn't hold up."""
    wants = min(1.0, (rate + sqrt(rate)) / seen.qps)
    return max(wants, min(seen.own, 1 / seen.qps)) if seen.used.has else wants
