"""Consistent hashing with bounded loads, sticky: partitions of living nodes stay, and those that must move, move once.

Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016, with weights, a lower bound, and a
second bound for the number of partitions. Partitions go to nodes that hold their neighbours, because these are of the
same projects; the ring decides among nodes that are equally near. docs/explanation/placement.md derives the bounds and
has the figures.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from evenlane.ring.placement.assignment import NOBODY, Assignment
from evenlane.ring.placement.bounds import bounds_of, weights_of
from evenlane.ring.placement.gathering import Gathering
from evenlane.ring.placement.gathering_at_rest import GatheringAtRest
from evenlane.ring.placement.nearby import GATHERED_FROM, Nearby
from evenlane.ring.placement.orphans import Orphans
from evenlane.ring.placement.preference import preference
from evenlane.ring.placement.repair import Repair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.ring.placement.strategy import PlacementRequest


def place_in_bounds(request: PlacementRequest) -> list[str]:
    """The strategy `bounded-ring`. Zones don't count."""
    names = tuple(node.name for node in request.nodes)
    weights = tuple(weights_of(request.loads))
    gathers = request.layout == "consecutive" and len(names) >= GATHERED_FROM
    made = _compute(names, weights, request.present, gathers=gathers)
    if gathers and request.gather_moves and made.owner == made.home:
        GatheringAtRest(made, _from_nothing(names, weights), request.gather_moves).run()
    return [names[owner] for owner in made.owner]


@lru_cache(maxsize=8)
def _from_nothing(names: tuple[str, ...], weights: tuple[int, ...]) -> list[int]:
    """Cached: it takes the longest, and gathering at rest asks for it at each step."""
    return _compute(names, weights, {}, gathers=True).owner


def _compute(
    names: tuple[str, ...], weights: Sequence[int], present: Mapping[int, str], *, gathers: bool
) -> Assignment:
    """The placement. Its nodes are the indices of `names`."""
    made = Assignment(weights, len(names), bounds_of(weights, len(names), gathers=gathers))
    ring = preference(names)
    nearby = Nearby(made, ring, gathers=gathers)
    _keep(made, names, present)
    for node in made.nodes:
        _release(made, node)
    Orphans(made, ring, nearby).place()
    repair = Repair(made, nearby)
    repair.run()
    if not any(any(made.strain(node)) for node in made.nodes):
        _reclaim(made)
    if gathers:
        Gathering(made, nearby).run()
        repair.run()  # of strains that remain: a plan computed again from the result must find nothing to repair
    return made


def _keep(made: Assignment, nodes: Sequence[str], present: Mapping[int, str]) -> None:
    index = {node: number for number, node in enumerate(nodes)}
    for partition in range(len(made.weights)):
        node = index.get(present.get(partition, ""))
        if node is not None:
            made.give(partition, node)
            made.home[partition] = node


def _release(made: Assignment, node: int) -> None:
    """Reduce a heavily overfull node to its share, as when many other nodes have just come.

    These partitions would move anyway; `Repair` would place them one by one, which takes longer.
    """
    bounds, held = made.bounds, made.held[node]
    heaviest, first = held[-1] if held else (0, NOBODY)
    much = made.load[node] > 2 * max(bounds.cap, heaviest + bounds.slack)
    many = made.count(node) > 2 * bounds.most
    load = count = 0
    for weight, partition in sorted(held, key=lambda item: (item[1] != first, item[1])) if much or many else ():
        fits = load + weight <= bounds.level and count < bounds.even_most
        movable = (much and weight >= bounds.grain) or (many and weight == 0)
        if movable and not fits and partition != first:
            made.unassign(partition)
        else:
            load += weight
            count += 1


def _reclaim(made: Assignment) -> None:
    """Return a partition to its home if, in hindsight, all bounds hold without its move."""
    for partition, owner in enumerate(made.owner):
        home = made.home[partition]
        if home not in {owner, NOBODY}:
            left = made.strain(home, plus=partition), made.strain(owner, minus=partition)
            if not any(map(any, left)):
                made.give(partition, home)
