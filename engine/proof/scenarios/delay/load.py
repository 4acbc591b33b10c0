"""The load of `delay`: five kinds of projects.

`far-*` have most of the delayed messages, none of which becomes due in the run. `timed-*` have messages due at known
instants, spread over the run, and `paced-*` messages that are due at once. `burst` and `free` each have
the same number of messages, due at one instant; the quota of `free` is too high to matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log
from typing import TYPE_CHECKING

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.producer.put import Put
from evenlane.engine.proof.load.arrivals import SECOND, stream_of, uniform
from evenlane.engine.proof.load.load import Load, tenant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.proof.load.load import LoadTenant

FAR, TIMED, PACED, BURST, FREE = "far", "timed", "paced", "burst", "free"
_BODY = b"x" * 100
_QPS = 50.0  # never reached by the projects that have it
_FREE_QPS, _FREE_GROUPS = 3_000.0, 20
_ACK_WAIT_S = 30.0
_MIDDLE = 1  # the band of all messages


@dataclass(frozen=True)
class DelaySize:
    """The size of a run; the defaults are those of the scenario. Times in s."""

    waiting: int = 1_000_000
    soon: int = 100_000  # those that the node has in its index already, due after the run
    soon_s: tuple[float, float] = (400.0, 900.0)
    later_s: tuple[float, float] = (3_600.0, 90 * 86_400.0)
    far: int = 100  # number of far projects
    timed: int = 50
    paced: int = 200
    partitions: int = 128
    timed_rate: float = 200.0  # msg/s with a known due time
    paced_rate: float = 1_000.0  # msg/s due at once
    burst: int = 5_000  # messages due at one instant
    burst_qps: float = 50.0
    alone_s: float = 15.0  # measured before anything waits
    steady_s: float = 25.0
    again_s: float = 12.0  # measured after the restart, and after the handoff
    timed_s: float = 90.0  # for how long messages become due: longer than all of the above together
    most_s: float = 180.0  # longest time of the load
    lease_ttl: int = 5


class DelayProjects:
    """The tenants of a size."""

    def __init__(self, size: DelaySize) -> None:
        self.size, self.cluster_config = size, ClusterConfig(partitions=size.partitions)
        self.far = [self._tenant(f"{FAR}-{number}", _QPS) for number in range(size.far)]
        self.timed = [self._tenant(f"{TIMED}-{number}", _QPS) for number in range(size.timed)]
        self.paced = [self._tenant(f"{PACED}-{number}", _QPS) for number in range(size.paced)]
        self.burst = self._tenant(BURST, size.burst_qps)
        self.free = self._tenant(FREE, _FREE_QPS, _FREE_GROUPS)

    def _tenant(self, name: str, qps: float, groups: int = 1) -> LoadTenant:
        return tenant(name, self.cluster_config, qps=qps, groups=groups, ack_wait=_ACK_WAIT_S)

    @property
    def all(self) -> list[LoadTenant]:
        return [*self.far, *self.timed, *self.paced, self.burst, self.free]

    def steady(self, seconds: float, turn: int) -> Load:
        """Return messages of all paced queues in turn. Loads that differ in `turn` share no message id."""
        return Load.steady(self.paced, self.size.paced_rate, seconds, self.cluster_config, band=_MIDDLE, turn=turn)

    def make_waiting(self, seed: int, now: int) -> Iterator[Put]:
        """Return messages due much later, evenly on a logarithmic scale, except those due soon; `now` in unix ns."""
        rng, size = stream_of(seed, FAR), self.size
        for number in range(size.waiting):
            low, high = size.soon_s if number < size.soon else size.later_s
            due = now + int(exp(rng.uniform(log(low), log(high))) * SECOND)
            yield Put(self.far[number % len(self.far)].name, _BODY, due=due)

    def make_coming_due(self, start: int, seconds: float) -> Iterator[Put]:
        """Return messages with evenly spaced due times from `start` (unix ns) on, of the projects in turn."""
        for number, due in enumerate(uniform(self.size.timed_rate, start, start + int(seconds * SECOND))):
            yield Put(self.timed[number % len(self.timed)].name, _BODY, due=due)

    def make_at_once(self, of: LoadTenant, due: int) -> Iterator[Put]:
        """Return messages that are all due at the same instant."""
        for _ in range(self.size.burst):
            yield Put(of.name, _BODY, due=due)
