"""What a node could use of a topic, measured each second. Pure."""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

_SECOND = 1_000_000_000
_LEAST = _SECOND // 2  # over less than that no rate is measured


class _Look(NamedTuple):
    """`spent` messages were charged by `at` (ns); at `rate` messages a second before, if that is known; under a quota
    of `qps`.
    """

    spent: int
    at: int
    rate: float | None
    qps: float


class Demand:
    """Counts of messages that were charged, by project, and the rates that follow."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}

    def only(self, projects: set[str]) -> None:
        """Forget all others."""
        for gone in self._looks.keys() - projects:
            del self._looks[gone]

    def look(self, project: str, spent: int, now: int, qps: float) -> float | None:
        """Messages a second since an earlier look; None at the first under this quota: another one says nothing of what
        could be used now.
        """
        last = self._looks.get(project)
        if last is None or last.qps != qps:
            self._looks[project] = _Look(spent, now, None, qps)
            return None
        if now - last.at < _LEAST:
            return last.rate
        rate = max(0.0, (spent - last.spent) * _SECOND / (now - last.at))
        self._looks[project] = _Look(spent, now, rate, qps)
        return rate


def wanted(rate: float, waiting: int | None, most: float) -> float:
    """Messages a second. `waiting`: how many wait for quota, None if nothing does; `most`: what its groups may have.

    What waits is to be gone in a second. Where nothing waits, arrivals of many senders vary by their square root.
    """
    return rate + sqrt(rate) if waiting is None else min(rate + waiting, max(rate, most))
