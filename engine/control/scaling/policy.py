"""The policies of scaling, and what they see."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.ring.membership.records import NodeRecord


class Bounds(NamedTuple):
    """The least and the greatest number of nodes. `rest_s`: see the policies."""

    least: int = 2
    most: int = 100
    rest_s: float = 600.0


class Rules(NamedTuple):
    """Policy `rules`: one node more or fewer, by thresholds; then it rests for `rest_s`.

    `cpu_above` is a share of what a node's container may use. The other two are mean numbers of projects per node. A
    threshold of 0 is off.
    """

    cpu_above: float = 0.9
    projects_above: float = 50.0
    projects_below: float = 2.0


class Need(NamedTuple):
    """Policy `need`: the number of nodes that the waits for slots need.

    With `quantile` 0.99 and `wait_s` 2, the nodes suffice if at most 1 % of the messages wait for a slot for longer
    than 2 s. No node should use more than `cpu_above` of its CPU; 0: CPU doesn't matter. Nodes are added at once, and
    removed after `rest_s` in which fewer were enough.
    """

    quantile: float = 0.99
    wait_s: float = 2.0
    cpu_above: float = 0.9


Policy: TypeAlias = Rules | Need


class Observation(NamedTuple):
    """What a look has found: the nodes that can work, and the number of replicas that was asked for.

    A node without a `load` in its record has just started, or is of an older release. `partitions` is the number in the
    environment: further nodes would own none.
    """

    nodes: Mapping[str, NodeRecord]
    replicas: int
    partitions: int


class Proposal(NamedTuple):
    """What a policy proposes, before bounds and rest. `up` is the number of nodes if that is more than there are;
    `down` is the number that suffices, with a margin. `why` is a clause.
    """

    up: int
    down: int
    why: str
