"""The load of a day: when messages arrive, and when their quotas let them go."""

from __future__ import annotations

import heapq
import math
from array import array
from bisect import bisect_left
from itertools import repeat
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HOUR = 3_600.0


class Project(NamedTuple):
    """`rate(t)` is in messages per second at most `most`, `handling_s` the mean of an exponential time. `backlog`
    messages are there at once, at `backlog_at`.
    """

    name: str
    rate: Callable[[float], float]
    most: float
    handling_s: float = 4.0
    qps: float = math.inf
    backlog: int = 0
    backlog_at: float = 0.0


class Day:
    """Arrivals of each project as instants in s, and the instants at which its quota lets each message go."""

    def __init__(self, projects: list[Project], hours: float, seed: int) -> None:
        self.projects, self.seconds = projects, hours * HOUR
        self.arrived = [self._arrive(project, Random(f"{seed}/{project.name}")) for project in projects]
        self.allowed = [
            array("d", _by_quota(times, project.qps)) for times, project in zip(self.arrived, projects, strict=True)
        ]

    def _arrive(self, project: Project, rng: Random) -> array[float]:
        """A Poisson process of a varying rate, by thinning one of the greatest rate (Lewis and Shedler, 1979)."""
        times, at = array("d"), 0.0
        while project.most and (at := at + rng.expovariate(project.most)) < self.seconds:
            if rng.random() * project.most < project.rate(at):
                times.append(at)
        return array("d", sorted([*times, *([project.backlog_at] * project.backlog)]))

    def messages(self) -> Iterator[tuple[float, int]]:
        """All messages by the time at which their quotas let them go, each with its project's number."""
        return heapq.merge(*(zip(times, repeat(number)) for number, times in enumerate(self.allowed)))

    def offered(self, begin: float, end: float) -> float:
        """The mean number of slots that the messages of this time take, within quotas."""
        work = 0.0
        for project, times in zip(self.projects, self.allowed, strict=True):
            work += (bisect_left(times, end) - bisect_left(times, begin)) * project.handling_s
        return work / (end - begin)


def _by_quota(times: array[float], qps: float) -> Iterator[float]:
    due = -math.inf
    for at in times:
        due = max(at, due + 1 / qps)
        yield due


def _wave(mean: float, swing: float, peak_hour: float) -> Callable[[float], float]:
    return lambda at: mean * (1 + swing * math.cos(2 * math.pi * (at / HOUR - peak_hour) / 24))


def _jump(before: float, after: float, begin: float, end: float) -> Callable[[float], float]:
    return lambda at: after if begin <= at < end else before


def usual_day(hours: float = 24.0, seed: int = 1) -> Day:
    """Ten projects that follow the day, one that jumps to twelve times its rate for 20 minutes, and one that waits for
    its quota for hours.
    """
    projects = [Project(f"p{number}", _wave(1.2, 0.8, 14), 2.16) for number in range(10)]
    jump_at = 0.4375 * hours * HOUR  # 10:30
    projects.append(Project("jumps", _jump(1.0, 12.0, jump_at, jump_at + 1_200), 12.0))
    projects.append(blocked_project(backlog_at=0.08 * hours * HOUR, backlog=int(1_500 * hours)))
    return Day(projects, hours, seed)


def blocked_project(backlog_at: float, backlog: int) -> Project:
    return Project("blocked", lambda _: 0.0, 0.0, handling_s=2.0, qps=2.0, backlog=backlog, backlog_at=backlog_at)


def blocked_day(hours: float = 24.0, seed: int = 1) -> Day:
    """An even load, and 100,000 messages that wait for a quota of 2 msg/s."""
    even = [Project(f"p{number}", lambda _: 0.5, 0.5, handling_s=2.0) for number in range(4)]
    return Day([*even, blocked_project(backlog_at=0.5 * HOUR, backlog=100_000)], hours, seed)


def day_of_counts(counts: list[tuple[float, float]], slots: float, seed: int = 1, handling_s: float = 4.0) -> Day:
    """A day with the form of a trace: `(second, count)` in order; its mean load takes this number of slots."""
    end, mean = counts[-1][0], sum(count for _, count in counts) / len(counts)
    rates = [count * slots / mean / handling_s for _, count in counts]
    step = end / (len(counts) - 1)

    def rate(at: float) -> float:
        return rates[min(int(at / step), len(rates) - 1)]

    return Day([Project("trace", rate, max(rates), handling_s)], end / HOUR, seed)
