"""The load of `live`: topics that are edited, and a crowd of others.

Each kind of change has some topics, which alternate between two specs. All of them have a backlog on all
nodes, all the time. The `crowd` has one, too, so no slot is ever free, and weights decide which tenant goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.proof.cluster.cluster import ENV
from evenlane.engine.proof.load.arrivals import in_turn
from evenlane.engine.proof.load.load import Arrival, Load, tenant
from evenlane.quota.topics.topic import encode
from evenlane.ring.coordination.ports import DeleteKey, PutKey
from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.proof.load.load import LoadTenant
    from evenlane.ring.coordination.ports import Op

PAUSE, QUOTA, SLOTS, WEIGHT, AGEING, DRAIN, DELETE = KINDS = (
    "pause", "quota", "slots", "weight", "ageing", "drain", "delete",
)  # fmt: skip
PEER, STORM, CROWD = "peer", "storm", "crowd"
HIGH, LOW = 1, 2  # bands with a backlog; only `ageing` uses the lower one
SERVICE_S = 0.1
QPS, LOW_QPS = 90.0, 3.0
STORM_QPS = (60.0, 30.0)  # a storm alternates between these, and ends at LOW_QPS
_FREE_QPS = 3_000.0  # never reached
_CROWD_QPS = 100.0
_HEAVY, _LIGHT = 50.0, 10.0  # weights; each tenant of the crowd has 1
AGEING_SHARE = 0.5
_MOST = 100_000  # most messages in one load, which one process puts


class Toggle(NamedTuple):
    """A kind of change: the `base` of its topics' specs, what is `changed` in them (None: they are deleted), and the
    names of this change and of its reversal. `waiting`: messages of each topic at the beginning.
    """

    kind: str
    there: str
    back: str
    base: dict[str, Any]
    changed: dict[str, Any] | None
    waiting: int


TOGGLES = (
    Toggle(PAUSE, "pause", "resume", {"weight": _LIGHT}, {"state": "paused"}, 8_000),
    Toggle(QUOTA, "quota down", "quota up", {"qps": QPS, "weight": _HEAVY}, {"qps": LOW_QPS}, 10_000),
    Toggle(SLOTS, "concurrency down", "concurrency up", {"weight": _HEAVY}, {"concurrency": 1}, 25_000),
    Toggle(WEIGHT, "weight down", "weight up", {"weight": _HEAVY}, {"weight": 1}, 25_000),
    # (few groups: each counts its own turns, so with many their turns would take longer than the change)
    Toggle(
        AGEING,
        "ageing on",
        "ageing off",
        {"weight": _HEAVY, "qps": 1_500, "groups": 12},
        {"ageing": AGEING_SHARE},
        25_000,
    ),
    Toggle(DRAIN, "drain", "drain over", {"weight": _LIGHT}, {"state": "draining"}, 8_000),
    Toggle(DELETE, "delete", "put back", {"weight": _LIGHT}, None, 8_000),
)
_BY_KIND = {toggle.kind: toggle for toggle in TOGGLES}


@dataclass(frozen=True)
class LiveSize:
    """The size of a run; the defaults are those of the scenario. Times in s."""

    topics: int = 2  # topics per kind of change
    groups: int = 48  # groups per topic
    crowd: int = 60  # tenants of the crowd
    partitions: int = 128
    rate: float = 400.0  # msg/s put for the crowd, more than it gets
    slots: int = 40  # slots per node, so a node handles 400 msg/s
    every_s: float = 0.1  # time between two edits
    steady_s: float = 40.0
    storm_s: float = 3.0  # of one quota, edited as fast as etcd accepts it, but at most 1,000 times per second
    after_s: float = 3.0  # how long each move is watched after its end
    polled_s: float = 11.0  # a round of edits on nodes that poll
    least: float = 1.0  # factor for the backlogs of TOGGLES
    most_s: float = 240.0  # longest time of the load
    lease_ttl: int = 5


@dataclass(frozen=True)
class EditedTopic:
    """A topic and its two specs; the second one is None if the topic is deleted. `partitions` are its groups'."""

    name: str
    toggle: Toggle
    specs: tuple[LoadTenant, LoadTenant | None]
    partitions: frozenset[int]

    def op(self, changed: bool) -> Op:
        """The operation that puts it into this state in etcd."""
        key = names.key(ENV, "topics", self.name)
        spec = self.specs[changed]
        return DeleteKey(key) if spec is None else PutKey(key, encode(spec.topic))


class LiveProjects:
    """The tenants of a size."""

    def __init__(self, size: LiveSize) -> None:
        self.size, self.cluster_config = size, ClusterConfig(partitions=size.partitions)
        # two edits of one topic are far from one another: kinds come in turn
        self.edited = [self._make_edited(toggle, number) for number in range(size.topics) for toggle in TOGGLES]
        self.peer = self._tenant(f"{PEER}-0", {"weight": _HEAVY})
        self.storm = self._tenant(f"{STORM}-0", self._stormy(STORM_QPS[0]))
        self.crowd = [
            tenant(f"{CROWD}-{number}", self.cluster_config, qps=_CROWD_QPS, groups=1, weight=1)
            for number in range(size.crowd)
        ]

    def _make_edited(self, toggle: Toggle, number: int) -> EditedTopic:
        name = f"{toggle.kind}-{number}"
        here = self._tenant(name, toggle.base)
        there = None if toggle.changed is None else self._tenant(name, toggle.base | toggle.changed)
        return EditedTopic(name, toggle, (here, there), self.lies_on(here))

    def lies_on(self, of: LoadTenant) -> frozenset[int]:
        """Return the partitions of its groups."""
        spread, config = of.topic.spread, self.cluster_config
        found = (
            partition_of(of.name, group, spread, config.partitions, config.layout) for group in range(of.topic.groups)
        )
        return frozenset(found)

    def stormy(self, qps: float) -> PutKey:
        """Return the storm's topic with another quota."""
        topic = self._tenant(self.storm.name, self._stormy(qps)).topic
        return PutKey(names.key(ENV, "topics", self.storm.name), encode(topic))

    def _stormy(self, qps: float) -> dict[str, Any]:
        return {"qps": qps, "weight": _HEAVY}

    def _tenant(self, name: str, spec: dict[str, Any]) -> LoadTenant:
        whole = {"qps": _FREE_QPS, "groups": self.size.groups} | spec
        return tenant(name, self.cluster_config, **whole, spread=min(whole["groups"], self.size.partitions))

    @cached_property
    def by_name(self) -> dict[str, EditedTopic]:
        return {each.name: each for each in self.edited}

    @property
    def all(self) -> list[LoadTenant]:
        return [*(each.specs[0] for each in self.edited), self.peer, self.storm, *self.crowd]

    def steady(self) -> Load:
        """Return the messages for the crowd, in turn."""
        return Load.steady(self.crowd, self.size.rate, self.size.most_s, self.cluster_config, band=HIGH)

    def make_waiting(self) -> Iterator[Load]:
        """Return the backlog at the beginning, of the groups in turn, split into loads that one process can put."""
        some: list[tuple[LoadTenant, int, int]] = []
        for each, band, count in self._backlogs():
            if some and sum(waiting for _, _, waiting in some) + count > _MOST:
                yield self._at_once(some)
                some = []
            some.append((each, band, count))
        yield self._at_once(some)

    @property
    def waits(self) -> dict[str, int]:
        """The backlog of each edited topic at the beginning."""
        counts: dict[str, int] = {}
        for each, _, count in self._backlogs():
            counts[each.name] = counts.get(each.name, 0) + count
        return counts

    def _backlogs(self) -> Iterator[tuple[LoadTenant, int, int]]:
        """Two of one topic are in one load: ids are made of the project and the number in the load."""
        for each in sorted(self.edited, key=lambda each: each.toggle.kind != AGEING):
            for band in (HIGH, LOW) if each.toggle.kind == AGEING else (HIGH,):
                yield each.specs[0], band, self._count(each.toggle)
        yield self.peer, HIGH, self._count(_BY_KIND[SLOTS])
        yield self.storm, HIGH, self._count(_BY_KIND[QUOTA])

    def _count(self, toggle: Toggle) -> int:
        return max(self.size.groups, round(toggle.waiting * self.size.least))

    def _at_once(self, backlogs: list[tuple[LoadTenant, int, int]]) -> Load:
        arrivals = []
        for number, (each, band, count) in enumerate(backlogs):
            groups = in_turn(each.topic.groups)
            arrivals += [Arrival(0, number, next(groups), band, 0) for _ in range(count)]
        return Load.of([each for each, _, _ in backlogs], arrivals, 0, self.cluster_config)
