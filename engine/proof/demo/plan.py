"""The plan of the demo: its loads, arms and rounds, in numbers.

A node has 16 slots and handlers of 40 ms: at most 400 msg/s. The victims together need half of that. The hot project
alone asks for more than twice all of it, and for twenty times its quota. With handlers of 1 or 2 ms the figures would
mostly show how late the timers of a busy machine are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Literal

import msgspec

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.proof.baselines.schedulers import FifoScheduler, stored_at
from evenlane.engine.proof.load.arrivals import SECOND, poisson, stream_of, uniform
from evenlane.engine.proof.load.load import Arrival, Load, LoadTenant
from evenlane.quota.topics.topic import complete, parse_spec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.core.scheduler.interface import Scheduler

SLOTS = 16
SERVICE_S = 0.04
QUOTA, BURST = 50, 10  # msg/s and messages, per project
HOT_RATE = 1_000.0  # msg/s
CLUSTER_CONFIG = ClusterConfig(partitions=16)
SPEC = msgspec.json.encode({"qps": QUOTA, "burst": BURST})
HOT = "hot"

# The victims put nothing at the end of a turn: no scheduler could handle it in time.
LAST_S = 0.25

_VICTIM_RATE, _VICTIMS_RATE = 10.0, 200.0  # most msg/s, of one victim and of all
_BAND, _SEED = 1, 1
_SERVICE = int(SERVICE_S * SECOND)
# A figure is the median over rounds, so that a single hiccup of the machine doesn't matter.
_TURN_S, _LONGEST_TURN_S = 1.3, 20.0
_ROUNDS = 15  # most rounds, unless turns become too long: each begins with new streams

Arm = Literal["without hot", "with hot", "control"]
ARMS: tuple[Arm, ...] = ("without hot", "with hot", "control")
TITLES = {"without hot": "without hot", "with hot": "with hot", "control": "FIFO"}


@dataclass(frozen=True)
class Plan:
    """`seconds` of load for `projects` tenants, cut into rounds in which each arm has a turn."""

    seconds: float
    projects: int

    @property
    def rounds(self) -> int:
        load_s = self.seconds / len(ARMS)
        return max(1, min(_ROUNDS, int(load_s / _TURN_S)), ceil(load_s / _LONGEST_TURN_S))

    @property
    def turn_s(self) -> float:
        return self.seconds / len(ARMS) / self.rounds

    @property
    def victims(self) -> list[str]:
        return [f"project-{number:03d}" for number in range(1, self.projects)]

    @property
    def victim_rate(self) -> float:
        """The rate of each victim, msg/s."""
        return min(_VICTIM_RATE, _VICTIMS_RATE / (self.projects - 1))

    def load(self, arm: Arm, number: int) -> Load:
        """The load of round `number`: that of the victims is the same in all arms."""
        until = int(self.turn_s * SECOND)
        topic = complete(parse_spec(SPEC), CLUSTER_CONFIG)
        tenants = [LoadTenant(name, topic) for name in (*self.victims, HOT)]
        arrivals = [*self._of_victims(number, until - int(LAST_S * SECOND))]
        if arm != "without hot":
            arrivals += [Arrival(at, len(tenants) - 1, 0, _BAND, _SERVICE) for at in uniform(HOT_RATE, 0, until)]
        return Load.of(tenants, arrivals, until, CLUSTER_CONFIG)

    def _of_victims(self, number: int, until: int) -> Iterator[Arrival]:
        """Draw the victims' arrivals at random, for all victims together, as their number may be large."""
        rng, count = stream_of(_SEED, "victims", number), self.projects - 1
        for at in poisson(rng, self.victim_rate * count, 0, until):
            yield Arrival(at, rng.randrange(count), 0, _BAND, _SERVICE)


def scheduler(arm: Arm) -> Scheduler[Queue]:
    """The product's own, or the control: first come, first served."""
    if arm == "control":
        return FifoScheduler(stored_at)
    return FairScheduler(SLOTS, CLUSTER_CONFIG.max_group_qps)
