"""What a placement strategy gets and gives. A package can bring its own (docs/how-to/write-a-placement-strategy.md)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.ring.hashing import Layout

GROUP = "evenlane.placement"
"""The group of entry points in which strategies are found by name."""


class PlacementNode(NamedTuple):
    """A node that may own partitions. `zone` is its setting of that name; empty: not set."""

    name: str
    zone: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRequest:
    """The facts to place by.

    `nodes` are sorted by name, each once, at least one. `loads` has the load of each partition, msg/s. `present` has
    the owners by partition: it may name nodes that are gone, and omit partitions. `layout` says whether a project's
    partitions are neighbours. `gather_moves` is how many partitions may move for no other reason than to bring
    neighbours together: more than 0 only if the cluster has been at rest for some time. A strategy may pass over it.
    Later releases may add fields with defaults.
    """

    nodes: Sequence[PlacementNode]
    loads: Sequence[float]
    present: Mapping[int, str] = field(default_factory=dict)
    layout: Layout = "consecutive"
    gather_moves: int = 0


class PlacementStrategy(Protocol):
    """Computes a placement: a pure function, since each leader must come to the same plan (Z2)."""

    def __call__(self, request: PlacementRequest, /) -> Sequence[str]:
        """The name of the owner of each partition. Equal requests give equal placements, and the owners stay if the
        placement is the present one, except for up to `gather_moves` partitions. Repeated with its own result, that
        comes to an end, too.
        """
        ...
