"""The load of partitions: the quotas of all projects, distributed over the partitions of their groups."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.ring.hashing import Layout


class Demand(NamedTuple):
    """A project's `qps` (msg/s), shared by its groups, which are on at most `spread` partitions, chosen by `layout`."""

    project: str
    qps: float
    groups: int
    spread: int
    layout: Layout

    def partitions(self, partitions: int) -> set[int]:
        """The project's partitions, out of `partitions` (P13)."""
        return {partition for partition, _groups in _places(self, partitions)}


def partition_loads(demands: Iterable[Demand], partitions: int) -> list[float]:
    """The load of each partition in msg/s; each group carries qps / groups. Independent of the order of `demands`."""
    shares: list[list[float]] = [[] for _ in range(partitions)]
    for demand in demands:
        for partition, groups in _places(demand, partitions):
            shares[partition].append(demand.qps * groups / demand.groups)
    return [math.fsum(each) for each in shares]  # rounded once: a plain sum would depend on the order


def queues_of(demands: Iterable[Demand], partitions: int, bands: int) -> list[int]:
    """The number of queues in each partition: one per group and priority (`bands` is the number of priorities)."""
    queues = [0] * partitions
    for demand in demands:
        for partition, groups in _places(demand, partitions):
            queues[partition] += groups * bands
    return queues


def _places(demand: Demand, partitions: int) -> Iterator[tuple[int, int]]:
    """(partition, groups there). Group i is in the partition of group i mod spread, so few hashes serve many groups."""
    for slot in range(min(demand.groups, demand.spread)):
        groups = (demand.groups - slot - 1) // demand.spread + 1
        yield partition_of(demand.project, slot, demand.spread, partitions, demand.layout), groups
