"""The scalers that are compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmarks.autoscaling.fleet import MINUTE, PARTITIONS, READY_S, SLOTS, TARGET, TARGET_S
from evenlane.engine.control.scaling.decision import ScalingState, decide
from evenlane.engine.control.scaling.erlang import wait_exceeds
from evenlane.engine.control.scaling.policy import Bounds

if TYPE_CHECKING:
    from benchmarks.autoscaling.day import Day
    from benchmarks.autoscaling.fleet import Look
    from evenlane.engine.control.scaling.policy import Policy

LEAST, MOST = 2, 12
BOUNDS = Bounds(LEAST, MOST)
PER_NODE = 1_000  # messages of backlog per node
_COOLDOWN_S = 300.0


def _fullest(nodes: int) -> float:
    """The share of the partitions that the fullest node has."""
    return math.ceil(PARTITIONS / nodes) / PARTITIONS


class Product:
    """The decision of `evenlane.engine.control.scaling`."""

    def __init__(self, policy: Policy, bounds: Bounds = BOUNDS) -> None:
        self._policy, self._bounds, self._state = policy, bounds, ScalingState()

    def __call__(self, look: Look) -> int:
        decision = decide(self._policy, self._bounds, look.seen, self._state, look.at)
        self._state = decision.state
        return decision.replicas


class ByBacklog:
    """The usual scaler of a queue, as a control: a node per 1,000 waiting messages; removes after 5 minutes."""

    def __init__(self, least: int = LEAST, most: int = MOST) -> None:
        self._least, self._most = least, most
        self._recent: list[tuple[float, int]] = []

    def __call__(self, look: Look) -> int:
        wanted = min(self._most, max(self._least, math.ceil(look.backlog / PER_NODE)))
        self._recent = [each for each in self._recent if look.at - each[0] < _COOLDOWN_S] + [(look.at, wanted)]
        return max(count for _, count in self._recent)


class Fixed:
    """Always the same number."""

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes

    def __call__(self, _look: Look) -> int:
        return self._nodes


class Clairvoyant:
    """Knows the day: for each minute it has the fewest nodes that meet the target under the load of that minute, and
    asks for them early enough.
    """

    def __init__(self, day: Day, least: int = LEAST) -> None:
        handling_s = max(project.handling_s for project in day.projects)
        minutes = range(math.ceil(day.seconds / MINUTE))
        self._needed = [self._nodes(day.offered(at * MINUTE, (at + 1) * MINUTE), handling_s, least) for at in minutes]

    @staticmethod
    def _nodes(offered: float, handling_s: float, least: int) -> int:
        nodes = least
        while wait_exceeds(SLOTS, offered * _fullest(nodes), handling_s, TARGET_S) > 1 - TARGET:
            nodes += 1
        return nodes

    def __call__(self, look: Look) -> int:
        first, last = int(look.at // MINUTE), int((look.at + READY_S + MINUTE) // MINUTE)
        return max(self._needed[first : last + 1], default=LEAST)
