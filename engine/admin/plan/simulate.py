"""Simulates placement for `evenlane plan simulate`: in a made-up environment, and after changes of its nodes."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import asdict, dataclass
from random import Random
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal, get_args

from evenlane.engine.base.plural import format_count
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.placement import load_strategy
from evenlane.engine.errors import ConfigError
from evenlane.quota.topics.topic import TopicSpec, complete
from evenlane.ring.hashing import Layout, partition_of
from evenlane.ring.membership.rest import REST_NS, STEP_NS, most_steps
from evenlane.ring.placement.bounds import FINE
from evenlane.ring.placement.load import Demand, partition_loads
from evenlane.ring.placement.placement import PlacementError, gather, place
from evenlane.ring.placement.preference import preference
from evenlane.ring.placement.strategy import PlacementNode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Plan = Sequence[str | None]

Change = Literal["join", "leave", "restart"]

# Quotas in QPS are log-normal: half of all projects have less than _MEDIAN_QPS, and a few have most of the total. With
# these parameters, 3,000 projects make about 60,000 groups.
_MEDIAN_QPS = 310.0
_SIGMA = 1.5
_MOST_QPS = 50_000.0
_MINUTE_NS = 60_000_000_000

MOST_NODES, MOST_PROJECTS, MOST_PARTITIONS = 10_000, 1_000_000, 65_536


@dataclass(frozen=True)
class Fleet:
    """Parameters of a simulation. Raises ConfigError for invalid ones."""

    nodes: int
    projects: int
    partitions: int = ClusterConfig().partitions
    change: Change | None = None
    seed: int = 1
    strategy: str = "bounded-ring"
    layout: Layout = "hashed"
    zones: int = 1

    def __post_init__(self) -> None:
        _check_range("--nodes", self.nodes, 1, MOST_NODES)
        _check_range("--projects", self.projects, 0, MOST_PROJECTS)
        _check_range("--partitions", self.partitions, 1, MOST_PARTITIONS)
        _check_range("--zones", self.zones, 1, self.nodes)
        load_strategy(self.strategy)
        if self.layout not in get_args(Layout):
            raise ConfigError(f"--layout must be one of {', '.join(get_args(Layout))}, not {self.layout!r}")
        if self.change in {"leave", "restart"} and self.nodes == 1:
            raise ConfigError(f"--{self.change} needs at least 2 nodes: otherwise none would be left")


def demands(projects: int, partitions: int, seed: int, layout: Layout = "hashed") -> list[Demand]:
    """Return `projects` projects with skewed quotas; equal seeds give equal ones."""
    cluster_config = ClusterConfig(partitions=partitions, layout=layout)
    quotas = _quotas(projects, Random(seed))  # noqa: S311 - a simulation
    return [_demand(f"project-{number}", qps, cluster_config) for number, qps in enumerate(quotas)]


def simulate(fleet: Fleet) -> dict[str, Any]:
    """Return the document of `plan simulate`. `seconds` is the time to compute one plan with empty caches, including
    the partitions' loads.

    With a change, the figures are those after it. After a restart, `gathered` has those after gathering at rest.
    """
    all_demands = demands(fleet.projects, fleet.partitions, fleet.seed, fleet.layout)
    strategy = load_strategy(fleet.strategy)
    names = [f"node-{number}" for number in range(fleet.nodes)]
    fresh = place(_in_zones(names, fleet), partition_loads(all_demands, fleet.partitions), {}, strategy, fleet.layout)
    moved_before, before = _restart(fresh, names, all_demands, fleet) if fleet.change == "restart" else (0, fresh)
    after_names = _change_nodes(names, fleet)
    preference.cache_clear()
    partition_of.cache_clear()
    began = time.perf_counter()
    loads = partition_loads(all_demands, fleet.partitions)
    after = place(
        _in_zones(after_names, fleet), loads, _present(before) if fleet.change else {}, strategy, fleet.layout
    )
    seconds = time.perf_counter() - began
    moved = moved_before + _count_moves(before, after)
    return {
        **asdict(fleet), "groups": sum(demand.groups for demand in all_demands),
        "max_over_mean": _evenness(after_names, after, loads),
        "count_max_over_mean": _evenness(after_names, after, [1.0] * fleet.partitions),
        "moved": moved, "moved_over_ideal": _compute_over_ideal(moved, fleet, before), "seconds": round(seconds, 4),
        "blast_radius": _compute_blast_radius(all_demands, after, len(after_names)),
        "zone_share": _compute_zone_share(all_demands, after, fleet),
        "gathered": _gather(after, after_names, all_demands, fleet) if fleet.change == "restart" else None,
    }  # fmt: skip


def warnings(fleet: Fleet) -> Iterator[str]:
    """Yield warnings about too few partitions."""
    nodes = fleet.nodes + (fleet.change == "join")
    if fleet.partitions < 2 * nodes:
        yield explain_too_few(fleet.partitions, nodes)
    elif fleet.partitions < FINE * nodes:
        yield (
            f"{fleet.partitions:,} partitions are fewer than {FINE} for each of {nodes:,} nodes, so their load can't"
            f" be even: {FINE * nodes:,} are needed"
        )


def explain_too_few(partitions: int, nodes: int) -> str:
    """Return the warning of P1 as a sentence."""
    are_fewer = format_count(partitions, "partition", "is fewer", "are fewer")
    return (
        f"{are_fewer} than twice the {format_count(nodes, 'node')}: some nodes will have far more work than others,"
        f" or none; at least {2 * nodes:,} are needed, and {FINE * nodes:,} for an even load"
    )


def _quotas(projects: int, random: Random) -> Iterator[float]:
    for _ in range(projects):
        drawn = random.lognormvariate(math.log(_MEDIAN_QPS), _SIGMA)
        yield round(min(max(drawn, 0.1), _MOST_QPS), 1)


def _demand(project: str, qps: float, cluster_config: ClusterConfig) -> Demand:
    topic = complete(TopicSpec({"qps": qps}), cluster_config)
    return Demand(project, topic.qps, topic.groups, topic.spread, cluster_config.layout)


def _restart(plan: Plan, names: Sequence[str], all_demands: Sequence[Demand], fleet: Fleet) -> tuple[int, Plan]:
    """Let all nodes leave and come back, one after another. Return the number of moves and the last plan, in which the
    last node has yet to come back.
    """
    loads, strategy = partition_loads(all_demands, fleet.partitions), load_strategy(fleet.strategy)
    moved = 0
    for name in names:
        for nodes in (names, [each for each in names if each != name]):
            before, plan = plan, place(_in_zones(nodes, fleet), loads, _present(plan), strategy, fleet.layout)
            moved += _count_moves(before, plan)
    return moved, plan


def _gather(plan: Plan, names: Sequence[str], all_demands: Sequence[Demand], fleet: Fleet) -> dict[str, Any]:
    """Take the leader's steps at rest until there is none. `worst_max_over_mean` is that of the worst step. Raises
    ConfigError if the strategy has a defect.
    """
    loads = partition_loads(all_demands, fleet.partitions)
    nodes, evenness = _in_zones(names, fleet), [_evenness(names, plan, loads)]
    moved: list[int] = []
    while (step := _step(plan, nodes, loads, fleet)) is not None:
        if len(moved) >= most_steps(len(names)):
            raise ConfigError(
                f"--strategy {fleet.strategy} has a defect: gathering hasn't ended after {len(moved):,} steps"
            )
        moved.append(_count_moves(plan, step))
        plan = step
        evenness.append(_evenness(names, plan, loads))
    return {
        "steps": len(moved), "moved": sum(moved), "most_moved_at_once": max(moved, default=0),
        "minutes": round((REST_NS + len(moved) * STEP_NS) / _MINUTE_NS) if moved else 0,
        "max_over_mean": evenness[-1], "worst_max_over_mean": max((each for each in evenness if each), default=None),
        "blast_radius": _compute_blast_radius(all_demands, plan, len(names)),
        "zone_share": _compute_zone_share(all_demands, plan, fleet),
    }  # fmt: skip


def _step(plan: Plan, nodes: Sequence[PlacementNode], loads: Sequence[float], fleet: Fleet) -> Plan | None:
    try:
        return gather(nodes, loads, _present(plan), load_strategy(fleet.strategy), fleet.layout)
    except PlacementError as error:
        raise ConfigError(f"--strategy {fleet.strategy} has a defect: {error}") from error


def _count_moves(before: Plan, after: Plan) -> int:
    return sum(one != other for one, other in zip(before, after, strict=True))


def _change_nodes(names: list[str], fleet: Fleet) -> list[str]:
    if fleet.change == "join":
        return [*names, f"node-{fleet.nodes}"]
    return names[:-1] if fleet.change == "leave" else names


def _present(plan: Plan) -> dict[int, str]:
    return {partition: owner for partition, owner in enumerate(plan) if owner is not None}


def _compute_over_ideal(moved: int, fleet: Fleet, before: Plan) -> float:
    """Return moves divided by the necessary ones: a new node needs its even share, and a leaving node's partitions must
    move. In a restart, each node does both. 0 if nothing has to move.
    """
    ideal = fleet.partitions / (fleet.nodes + 1) if fleet.change == "join" else 0.0
    if fleet.change == "restart":
        ideal = 2.0 * fleet.partitions
    if fleet.change == "leave":
        ideal = before.count(f"node-{fleet.nodes - 1}")
    return round(moved / ideal, 4) if ideal else 0.0


def _evenness(names: Sequence[str], plan: Plan, loads: Sequence[float]) -> float | None:
    """Return the highest load of a node divided by the mean of all; None if there is no load."""
    total = math.fsum(loads)
    if not total:
        return None
    carried = dict.fromkeys(names, 0.0)
    for owner, load in zip(plan, loads, strict=True):
        if owner is not None:
            carried[owner] += load
    return round(max(carried.values()) * len(names) / total, 4)


def _compute_blast_radius(all_demands: Sequence[Demand], plan: Plan, nodes: int) -> dict[str, float] | None:
    """Return the nodes that work for one project (P13): their share of all nodes, over all projects (`mean`, `max`) and
    over those with as many partitions as their spread allows (`largest_mean`), and the same as numbers of nodes.
    """
    if not all_demands:
        return None
    counts = [len({plan[each] for each in demand.partitions(len(plan))}) for demand in all_demands]
    largest = [count for count, demand in zip(counts, all_demands, strict=True) if demand.groups >= demand.spread]
    figures = {"mean": fmean(counts), "max": max(counts), "largest_mean": fmean(largest or counts)}
    return {
        **{name: round(count / nodes, 4) for name, count in figures.items()},
        **{f"nodes_{name}": round(count, 2) for name, count in figures.items()},
    }


def _compute_zone_share(all_demands: Sequence[Demand], plan: Plan, fleet: Fleet) -> dict[str, float] | None:
    """Return the greatest share of a project's partitions in one zone: what it loses with that zone."""
    if fleet.zones == 1 or not all_demands:
        return None
    shares = []
    for demand in all_demands:
        zones = Counter(_zone_of(str(plan[each]), fleet) for each in demand.partitions(len(plan)))
        shares.append(max(zones.values()) / zones.total())
    return {"mean": round(fmean(shares), 4), "max": round(max(shares), 4)}


def _in_zones(names: Sequence[str], fleet: Fleet) -> list[PlacementNode]:
    return [PlacementNode(name, _zone_of(name, fleet)) for name in names]


def _zone_of(name: str, fleet: Fleet) -> str:
    return "" if fleet.zones == 1 else f"zone-{int(name.removeprefix('node-')) % fleet.zones}"


def _check_range(flag: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise ConfigError(f"{flag} must be {least:,} to {most:,}, not {value:,}")
