"""An arm of a scenario: a load, what carries it, and the figures to read from what became of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable

    from evenlane.engine.proof.scenarios.figures import Figures
    from evenlane.engine.proof.scenarios.load import Load
    from evenlane.engine.proof.scenarios.placed import Placed
    from evenlane.engine.proof.scenarios.schedulers import Make
    from evenlane.engine.proof.scenarios.trace import Trace

Quotas = Literal["shared", "static", "whole"]
"""Over several nodes: the product moves shares that nobody uses; as controls each node keeps its own, or gives the
whole quota.
"""


def as_it_is(load: Load, _where: Placed) -> Load:
    return load


def evenly(load: Load, where: Placed) -> Load:
    """As much of each tenant on each node, as far as it has groups there. Numbers of groups that differ by the number
    of nodes mean the same node.
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
    """`read` takes the figures from a trace. `at_hand`: on the broker the node holds every message that waits, so
    that a scheduler that goes by age really sees which is the oldest.

    `nodes`: on how many, None: on as many as the scenario. `aim` makes the load that is put from `load`, once it
    is known which node has which group; it changes groups alone.
    """

    load: Load
    make: Make
    read: Callable[[Trace], Figures]
    at_hand: bool = False
    nodes: int | None = None
    quotas: Quotas = "shared"
    aim: Callable[[Load, Placed], Load] = as_it_is
