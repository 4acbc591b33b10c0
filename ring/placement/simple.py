"""Strategies for comparison, those of Kafka's assignors: they consider neither loads nor present owners."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.ring.placement.strategy import PlacementRequest


def place_in_ranges(request: PlacementRequest) -> list[str]:
    """Neighbouring partitions together; the first nodes have one more."""
    each, more = divmod(len(request.loads), len(request.nodes))
    return [node.name for number, node in enumerate(request.nodes) for _ in range(each + (number < more))]


def place_in_turn(request: PlacementRequest) -> list[str]:
    """Partition i goes to node i mod N."""
    return [request.nodes[partition % len(request.nodes)].name for partition in range(len(request.loads))]
