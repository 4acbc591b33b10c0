"""The load of `rebalance`: three kinds of projects.

`paced-*` together get `rate` msg/s, all their queues in turn. Of `deep-*` and `full-*` there is one for each partition,
with a quota so low that their backlog lasts.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from math import ceil
from typing import TYPE_CHECKING

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.proof.load.arrivals import SECOND, stream_of, uniform
from evenlane.engine.proof.load.load import Load, tenant
from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from evenlane.engine.proof.load.load import LoadTenant

PACED, DEEP, FULL = "paced", "deep", "full"
_PACED_QPS = 50.0  # each gets 2 msg/s; the second of two within 20 ms waits, which explains most of the calm p99
DEEP_QPS = 25.0  # so two starts are 40 ms apart
_FULL_QPS = 10.0
_ACK_WAIT_S = 60.0  # longer than the longest handler
_MIDDLE = 1  # the band of waiting messages
_AT_ONCE = 80_000  # a load is complete once it has this number of waiting messages, or more


@dataclass(frozen=True)
class RebalanceSize:
    """The size of a run; the defaults are those of the scenario. Times in s."""

    projects: int = 1_000  # number of projects; there are three times as many queues
    partitions: int = 128
    rate: float = 2_000.0  # msg/s
    waiting: int = 100_000  # messages in the partition with the held message
    elsewhere: int = 1_000  # messages in each other partition that moves
    backlog: int = 1_000_000  # messages in the partitions of the killed node
    full: int = 20_000  # least part of it in one partition
    each: int | None = None  # instead: this many messages in each of these partitions, in `queues` queues
    queues: int = 200
    lease_ttl: int = 5
    held_s: float = 5.0  # duration of a held message's handler
    most_s: float = 100.0  # longest time of the load


class RebalanceProjects:
    """The tenants of a size."""

    def __init__(self, size: RebalanceSize) -> None:
        self.size, self.cluster_config = size, ClusterConfig(partitions=size.partitions)
        self.paced = [self._tenant(f"{PACED}-{number}", _PACED_QPS) for number in range(size.projects)]
        self.deep = [self._tenant(name, DEEP_QPS) for name in one_for_each(DEEP, size.partitions)]
        groups = 1 if size.each is None else ceil(size.queues / len(self.cluster_config.priorities))
        self.full = [self._tenant(name, _FULL_QPS, groups) for name in one_for_each(FULL, size.partitions)]

    def _tenant(self, name: str, qps: float, groups: int = 1) -> LoadTenant:
        spread = {"spread": 1} if groups > 1 else {}
        return tenant(name, self.cluster_config, qps=qps, groups=groups, ack_wait=_ACK_WAIT_S, **spread)

    @property
    def all(self) -> list[LoadTenant]:
        return [*self.paced, *self.deep, *self.full]

    def steady(self, seed: int, seconds: float, turn: int) -> Load:
        """Return messages of all paced queues in turn, in an order given by the seed. Loads that differ in `turn` share
        no message id.
        """
        count, bands = len(self.paced), len(self.cluster_config.priorities)
        queues = [(number, band) for number in range(count) for band in range(bands)]
        stream_of(seed, "order").shuffle(queues)
        load = Load(tuple(self.paced), int(seconds * SECOND), self.cluster_config)
        for number, at in enumerate(uniform(self.size.rate, 0, load.until)):
            project, band = queues[number % len(queues)]
            _add(load, at, (project + turn) % count, band, 1)
        return load

    def make_waiting(self, of: Sequence[LoadTenant], counts: Mapping[int, int]) -> Iterator[Load]:
        """Return these numbers of messages in each of the partitions, split into loads of about 100,000: each load is
        put by one process, whose outcome grows with the load.
        """
        load = Load((), 0, self.cluster_config)
        for partition, count in counts.items():
            load = replace(load, tenants=(*load.tenants, of[partition]))
            if of[partition].topic.groups == 1:
                _add(load, 0, len(load.tenants) - 1, _MIDDLE, count)
            else:
                self._add_in_turn(load, len(load.tenants) - 1, count)
            if len(load) >= _AT_ONCE:
                yield load
                load = Load((), 0, self.cluster_config)
        if len(load):
            yield load

    def _add_in_turn(self, load: Load, project: int, count: int) -> None:
        """One message of each of its queues after another, the least urgent first."""
        bands = len(self.cluster_config.priorities)
        for number in range(count):
            group, band = divmod(number % self.size.queues, bands)
            _add(load, 0, project, bands - 1 - band, 1, group)


def _add(load: Load, at: int, project: int, band: int, count: int, group: int = 0) -> None:
    """Messages of one queue at one instant."""
    load.at.extend(array("q", [at]) * count)
    load.tenant.extend(array("l", [project]) * count)
    load.group.extend(array("l", [group]) * count)
    load.band.extend(array("b", [band]) * count)


def one_for_each(kind: str, partitions: int) -> list[str]:
    """A project of one group for each partition, in their order."""
    found: dict[int, str] = {}
    number = 0
    while len(found) < partitions:
        name = f"{kind}-{number}"
        found.setdefault(partition_of(name, 0, 1, partitions, "hashed"), name)
        number += 1
    return [found[partition] for partition in range(partitions)]


def share_out(total: int, least: int, partitions: Sequence[int]) -> dict[int, int]:
    """Divide messages between partitions, so that each partition with any gets at least `least` (or all of them)."""
    count = min(len(partitions), max(1, total // least))
    each, more = divmod(total, count)
    return {partition: each + (place < more) for place, partition in enumerate(partitions[:count])}
