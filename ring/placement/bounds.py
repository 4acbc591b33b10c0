"""The bounds of a node's load and number of partitions (docs/explanation/placement.md explains them)."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

FINE = 10  # partitions per node; with fewer, no bound near the mean can be kept at a reasonable cost
JITTERS = 1024
_BITS = 32  # of the heaviest weight


class Bounds(NamedTuple):
    """Loads in the units of `weights_of`.

    A node is overfull above `cap` (or above its heaviest partition + `slack`, if that is more) or with more than
    `most` partitions, and underfull below `least_load` or with fewer than `least` partitions.
    """

    level: int  # even load of the nodes, without those that a single heavy partition fills
    slack: int
    cap: int
    low_target: int
    high_target: int
    least_load: int
    aim: int  # an underfull node pulls up to this load
    grain: int  # a move that gains less isn't worth its handoff
    least: int
    most: int
    roomy_most: int  # partitions are placed up to this number
    even_least: int
    even_most: int

    def target(self, jitter: int) -> int:
        """The load up to which a node is filled at first; `jitter` is the node's own, below `JITTERS`.

        With a single target, all nodes would reach their cap at once when the mean falls as further nodes come.
        """
        return self.low_target + (self.high_target - self.low_target) * jitter // JITTERS


def weights_of(loads: Sequence[float]) -> list[int]:
    """Loads as integers, so that sums don't depend on the order of summation.

    Scaled by a power of two. Raises ValueError for a load that is negative, infinite or not a number.
    """
    if any(not 0 <= load < math.inf for load in loads):
        raise ValueError("a load must be a number of messages per second, 0 or more")
    _, exponent = math.frexp(max(loads, default=0.0))
    return [int(math.ldexp(load, _BITS - exponent)) for load in loads]


def bounds_of(weights: Sequence[int], nodes: int, *, gathers: bool = False) -> Bounds:
    """The bounds for these weights on `nodes` nodes (1 or more).

    With `gathers`, numbers of partitions may differ twice as much: where neighbours stay together, nodes have fewer
    partitions where the load is denser.
    """
    mean = sum(weights) // nodes
    rest, left = _share(weights, nodes)
    level = sum(rest) // left
    slack = mean // 20
    lightest, heaviest = _longest_first(rest, left)
    fits = heaviest <= level + slack
    fine = len(weights) >= FINE * nodes
    floor, spare = divmod(len(weights), nodes)
    even_most = floor + (spare > 0)
    tolerance = math.isqrt(floor) * (2 if gathers else 1) if weights and max(weights) > min(weights) else 0
    return Bounds(
        level=level,
        slack=slack,
        cap=level + slack if fits and fine else heaviest + slack,
        low_target=level - slack if fits else heaviest,
        high_target=level + slack * 3 // 5 if fits else heaviest,
        least_load=min(level - 2 * slack, lightest - slack),
        aim=level - slack if fits else lightest,
        grain=min(mean // 100, sum(weights) // (4 * max(1, len(weights)))) + 1,
        least=floor - tolerance - tolerance // 2,
        most=even_most + tolerance + tolerance // 2,
        roomy_most=even_most + tolerance,
        even_least=floor,
        even_most=even_most,
    )


def _share(weights: Sequence[int], nodes: int) -> tuple[list[int], int]:
    """The weights without those that fill a node each, heaviest first, and the number of nodes left for them."""
    falling = sorted(weights, reverse=True)
    total = sum(falling)
    alone = 0
    while alone < len(falling) and falling[alone] * (nodes - alone) > total:
        total -= falling[alone]
        alone += 1
    return falling[alone:], nodes - alone


def _longest_first(falling: Sequence[int], nodes: int) -> tuple[int, int]:
    """(lightest, heaviest) node when each weight goes to the lightest node so far.

    Graham, "Bounds on Multiprocessing Timing Anomalies", 1969: at most 4/3 of the optimum, so it shows what these
    weights make possible.
    """
    loads = [0] * nodes
    for weight in falling:
        heapq.heapreplace(loads, loads[0] + weight)
    return loads[0], max(loads)
