"""Consistent hashing with bounded loads, sticky: partitions of living nodes stay, and those that must move, move once.

Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2016, with weights, a lower bound, and a
second bound for the number of partitions. docs/explanation/placement.md derives the bounds and has the figures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.ring.placement.assignment import NOBODY, Assignment
from evenlane.ring.placement.bounds import bounds_of, weights_of
from evenlane.ring.placement.orphans import Orphans
from evenlane.ring.placement.preference import preference
from evenlane.ring.placement.repair import Repair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def bounded_ring(nodes: Sequence[str], loads: Sequence[float], present: Mapping[int, str]) -> list[int]:
    """The index in `nodes` (sorted, at least one) of each partition's owner."""
    weights = weights_of(loads)
    made = Assignment(weights, len(nodes), bounds_of(weights, len(nodes)))
    ring = preference(tuple(nodes))
    _keep(made, nodes, present)
    for node in made.nodes:
        _release(made, node)
    Orphans(made, ring).place()
    Repair(made, ring).run()
    _reclaim(made)
    return made.owner


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
    if any(any(made.strain(node)) for node in made.nodes):
        return
    for partition, owner in enumerate(made.owner):
        home = made.home[partition]
        if home not in {owner, NOBODY}:
            left = made.strain(home, plus=partition), made.strain(owner, minus=partition)
            if not any(map(any, left)):
                made.give(partition, home)
