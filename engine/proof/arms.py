"""An arm of a scenario: a load, the scheduler that serves it, and the figures read from its trace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.proof.baselines.schedulers import FifoScheduler, PlainScheduler

if TYPE_CHECKING:
    from array import array

    from evenlane.engine.core.scheduler.interface import Scheduler
    from evenlane.engine.proof.figures import Figures
    from evenlane.engine.proof.load.load import Load
    from evenlane.engine.proof.load.placement import Placement
    from evenlane.engine.proof.load.trace import Trace

Make = Callable[[int, Callable[[Any], int]], "Scheduler[Any]"]
"""(slots, arrival of a queue's head) -> scheduler"""

Quotas = Literal["shared", "static", "whole"]
"""Over several nodes the product lends unused shares. As controls each node keeps its own share, or gives the whole
quota.
"""


def product(slots: int, _arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    return FairScheduler(slots)


def without_headroom(slots: int, _arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    return FairScheduler(slots, headroom=False)


def fifo(_slots: int, arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    return FifoScheduler(arrived_at)


def round_robin(_slots: int, _arrived_at: Callable[[Any], int]) -> Scheduler[Any]:
    """Round robin over groups."""
    return PlainScheduler()


SCHEDULERS: dict[str, Make] = {each.__name__: each for each in (product, without_headroom, fifo, round_robin)}
"""By name, so that the process of a node can make them, too."""


def as_it_is(load: Load, _where: Placement) -> Load:
    return load


def evenly(load: Load, where: Placement) -> Load:
    """Divide each tenant's messages equally between the nodes, as far as it has groups there. Group numbers that are
    equal modulo the number of nodes mean the same node.
    """
    if where.nodes == 1:
        return load
    groups = [where.groups_of(tenant) for tenant in load.tenants]
    columns: array[int] = load.group[:0]
    for tenant, group in zip(load.tenant, load.group, strict=True):
        own = groups[tenant][group % where.nodes] or [group]
        columns.append(own[group // where.nodes % len(own)])
    return replace(load, group=columns)


@dataclass(frozen=True)
class Arm:
    """One arm. `read` computes the figures from a trace. `prefetched`: on the broker the node prefetches every message
    of the backlog, so that a scheduler by age sees the oldest one. `nodes` is the number of nodes (None: that of the
    scenario). `aim` derives the load to put from `load` once the groups of each node are known; it changes only groups.
    """

    load: Load
    make: Make
    read: Callable[[Trace], Figures]
    prefetched: bool = False
    nodes: int | None = None
    quotas: Quotas = "shared"
    aim: Callable[[Load, Placement], Load] = as_it_is
