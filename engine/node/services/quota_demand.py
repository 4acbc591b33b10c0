"""Measures how much of a topic a node could use, each second. Pure.

A node that its part holds up could use its present rate plus all waiting messages, within a second. Any other node
could use its present rate and a little more, since arrivals from many senders vary by their square root.

A message that waits for the bucket at the instant of a sample proves little: at three quarters of the rate, one waits
in three samples out of four. The part holds a topic up only if nearly all of it is used as well. Likewise, a second in
which no message was handed out proves little if the part is about one message per second: while a message is there, the
node wants that much of its own part.
"""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.scheduler.interface import QuotaUse

_SECOND = 1_000_000_000
_LEAST = _SECOND // 2  # shortest time over which a rate is measured
_NEARLY_ALL = 0.9


class QueueDemand(NamedTuple):
    """A topic on a node: its quota use, and its rate `qps` (msg/s), of which the node may use the fraction `part` now
    and owns the fraction `own`.
    """

    used: QuotaUse
    qps: float
    own: float
    part: float


class _Observation(NamedTuple):
    """One observation at instant `at` (ns). `rate` (msg/s) is the rate since the previous look, None if unknown."""

    seen: QueueDemand
    at: int
    rate: float | None
    allowed: float  # msg/s that the part allowed; `rate` is what was used of it


class QuotaDemand:
    """The demand by project. `waiting()` returns the number of waiting messages, and the highest rate (msg/s) that
    their groups may have.
    """

    def __init__(self, least_ns: int = _LEAST) -> None:
        self._least = least_ns
        self._looks: dict[str, _Observation] = {}

    def discard(self, project: str) -> None:
        """Drop a project of which the node has nothing any more."""
        self._looks.pop(project, None)

    def is_at_rest(self, project: str) -> bool:
        """Whether no message was handed out between the last two looks, and none was ready at the last one."""
        look = self._looks.get(project)
        return look is not None and look.rate == 0.0 and not look.seen.used.has

    def note_rest(self, project: str, until: int) -> None:
        """Record that the project was at rest until that instant (ns), as a look at that time would have found."""
        look = self._looks.get(project)
        if look is not None and look.at < until:
            self._looks[project] = look._replace(at=until)

    def want(self, project: str, seen: QueueDemand, now: int, waiting: Callable[[], tuple[int, float]]) -> float:
        """The fraction of the topic that the node could use."""
        look = self._look(project, seen, now)
        rate = look.rate
        if not seen.used.waits:
            return seen.own if rate is None else _compute_use(rate, seen)
        if rate is not None and rate + 1 < _NEARLY_ALL * look.allowed:
            return _compute_use(rate, seen)
        count, most = waiting()
        rate = rate or 0.0
        return min(1.0, min(rate + count, max(rate, most)) / seen.qps)

    def _look(self, project: str, seen: QueueDemand, now: int) -> _Observation:
        """The rate since an earlier look. Unknown at the first look under a new quota: a rate under the old one says
        nothing about it.
        """
        last = self._looks.get(project)
        allowed = seen.part * seen.qps
        if last is None or last.seen.qps != seen.qps:
            look = _Observation(seen, now, None, allowed)
        elif now - last.at < self._least:
            return last
        else:
            rate = max(0.0, (seen.used.spent - last.seen.used.spent) * _SECOND / (now - last.at))
            look = _Observation(seen, now, rate, min(allowed, last.seen.part * seen.qps))
        self._looks[project] = look
        return look


def _compute_use(rate: float, seen: QueueDemand) -> float:
    """The demand for a topic that isn't held up by its part."""
    wants = min(1.0, (rate + sqrt(rate)) / seen.qps)
    return max(wants, min(seen.own, 1 / seen.qps)) if seen.used.has else wants
