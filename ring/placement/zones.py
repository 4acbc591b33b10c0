"""Spreads each project over zones: consecutive partitions are in different zones, so it loses one zone's share with it.

Two steps: partitions are divided among zones, in proportion to their nodes, and each zone's partitions are placed on
its nodes as `bounded-ring` does. Partitions keep their zone as long as its load stays near its share.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from evenlane.ring.placement.bounded import place_in_bounds
from evenlane.ring.placement.bounds import weights_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.ring.placement.strategy import PlacementNode, PlacementRequest

_NO_ZONE = -1
_LOAD = 8  # of a partition's size, its load counts 8 times as much as the partition itself
_SLACK = 50  # a zone may differ from its share by a part of it


def place_in_zones(request: PlacementRequest) -> list[str]:
    """The strategy `zones`. Nodes without a zone form a zone of their own; with one zone it is `bounded-ring`."""
    zones: dict[str, list[PlacementNode]] = {}
    for node in request.nodes:
        zones.setdefault(node.zone, []).append(node)
    if len(zones) == 1:
        return place_in_bounds(request)
    listed = [zones[zone] for zone in sorted(zones)]
    divided = _Division(request, listed).divide()
    owners = [""] * len(request.loads)
    gather_moves = request.gather_moves
    for number, nodes in enumerate(listed):
        mine = [partition for partition, zone in enumerate(divided) if zone == number]
        present = {at: request.present[each] for at, each in enumerate(mine) if each in request.present}
        loads = [request.loads[each] for each in mine]
        placed = place_in_bounds(replace(request, nodes=nodes, loads=loads, present=present, gather_moves=gather_moves))
        for at, (partition, owner) in enumerate(zip(mine, placed, strict=True)):
            owners[partition] = owner
            gather_moves -= present.get(at) != owner
        gather_moves = max(0, gather_moves)
    return owners


class _Division:
    """Divides partitions among zones.

    Invariant: `_filled[z]` is the sum of the sizes of the partitions whose `_zone` is z. A zone's share of all sizes is
    in proportion to its nodes.
    """

    def __init__(self, request: PlacementRequest, zones: Sequence[Sequence[PlacementNode]]) -> None:
        weights = weights_of(request.loads)
        total = sum(weights)
        self._sizes = [_LOAD * weight * len(weights) + total + 1 for weight in weights]
        self._nodes = [len(nodes) for nodes in zones]
        self._shares = [sum(self._sizes) * nodes // sum(self._nodes) for nodes in self._nodes]
        self._filled = [0] * len(zones)
        self._zone = [_NO_ZONE] * len(weights)
        self._keep(request.present, {node.name: number for number, nodes in enumerate(zones) for node in nodes})

    def divide(self) -> list[int]:
        """The number of each partition's zone."""
        for partition, zone in enumerate(self._zone):
            if zone == _NO_ZONE:
                self._give(partition, self._emptiest())
        while self._level():
            pass
        return self._zone

    def _keep(self, present: Mapping[int, str], zone_of: Mapping[str, int]) -> None:
        for partition in range(len(self._zone)):
            zone = zone_of.get(present.get(partition, ""), _NO_ZONE)
            if zone != _NO_ZONE:
                self._give(partition, zone)

    def _give(self, partition: int, zone: int) -> None:
        if self._zone[partition] != _NO_ZONE:
            self._filled[self._zone[partition]] -= self._sizes[partition]
        self._zone[partition] = zone
        self._filled[zone] += self._sizes[partition]

    def _emptiest(self) -> int:
        """The zone that is filled least in proportion to its nodes, so that zones take turns."""
        return min(range(len(self._nodes)), key=lambda zone: (self._filled[zone] / self._nodes[zone], zone))

    def _level(self) -> bool:
        """Move one partition from the fullest zone to the emptiest, if one of them is too far from its share and the
        distance between the two falls. The sum of squared distances falls each time, so this ends.
        """
        surplus = [filled - share for filled, share in zip(self._filled, self._shares, strict=True)]
        giver, taker = surplus.index(max(surplus)), surplus.index(min(surplus))
        excess, lack = surplus[giver], -surplus[taker]
        if excess * _SLACK <= self._shares[giver] and lack * _SLACK <= self._shares[taker]:
            return False
        fitting = [each for each, zone in enumerate(self._zone) if zone == giver and self._sizes[each] < excess + lack]
        if not fitting:
            return False
        wanted = min(excess, lack) or max(excess, lack)
        self._give(
            min(fitting, key=lambda each: (self._crowd(each, taker), abs(self._sizes[each] - wanted), each)), taker
        )
        return True

    def _crowd(self, partition: int, zone: int) -> int:
        """How many of its neighbours are in the zone already."""
        adjacent = (self._zone[partition - 1], self._zone[(partition + 1) % len(self._zone)])
        return adjacent.count(zone)
