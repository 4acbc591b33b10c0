"""Places partitions on nodes: a pure function of the nodes, the loads and the present owners.

Its strategy can be exchanged (C2). This module checks what a strategy gets and gives: a defect in one that came with
another package must not leave a partition without an owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.ring.placement.bounded import place_in_bounds
from evenlane.ring.placement.strategy import PlacementNode, PlacementRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from evenlane.ring.hashing import Layout
    from evenlane.ring.placement.strategy import PlacementStrategy


class PlacementError(Exception):
    """The strategy failed, or its placement is invalid; the text says how."""


def place(
    nodes: Iterable[PlacementNode | str],
    loads: Sequence[float],
    present: Mapping[int, str],
    strategy: PlacementStrategy = place_in_bounds,
    layout: Layout = "consecutive",
) -> list[str | None]:
    """The owner of each partition; None only if there are no nodes.

    `loads` in msg/s, one per partition. `present` may name nodes that are gone, and omit partitions. The order of
    `nodes` doesn't matter; a name alone is a node without a zone. Raises ValueError for an invalid load;
    PlacementError.
    """
    known = _by_name(nodes)
    if not known:
        return [None] * len(loads)
    request = PlacementRequest(nodes=list(known.values()), loads=loads, present=present, layout=layout)
    return list(_check(_carry_out(strategy, request), known, len(loads)))


def gather(
    nodes: Iterable[PlacementNode | str],
    loads: Sequence[float],
    present: Mapping[int, str],
    strategy: PlacementStrategy = place_in_bounds,
    layout: Layout = "consecutive",
) -> list[str | None] | None:
    """One step towards a placement whose neighbouring partitions are together, from `present`, in which each partition
    has one of `nodes`. None if there is nothing to gather, or if the strategy doesn't do it.

    A step moves up to P / N partitions, as a join does. Repeated steps come to an end unless the strategy has a defect.
    Raises like `place`; PlacementError, too, if a step moves more, or if the strategy moves partitions although nothing
    has changed.
    """
    known = _by_name(nodes)
    before = [present.get(partition) for partition in range(len(loads))]
    if not known.keys() >= set(before):
        return None
    stayed = place(known.values(), loads, present, strategy, layout)
    if moved := _count_moves(before, stayed):
        raise PlacementError(f"the placement strategy moves partitions ({moved:,}) although nothing has changed")
    most = max(2, len(loads) // max(1, len(known)))
    request = PlacementRequest(
        nodes=list(known.values()), loads=loads, present=present, layout=layout, gather_moves=most
    )
    after = _check(_carry_out(strategy, request), known, len(loads))
    moved = _count_moves(before, after)
    if moved > most:
        raise PlacementError(f"the placement strategy moves more partitions ({moved:,}) than `gather_moves` ({most:,})")
    return list(after) if moved else None


def _count_moves(before: Sequence[str | None], after: Sequence[str | None]) -> int:
    return sum(one != other for one, other in zip(before, after, strict=True))


def _by_name(nodes: Iterable[PlacementNode | str]) -> dict[str, PlacementNode]:
    """The nodes by name, sorted."""
    known = {node.name: node for node in (PlacementNode(each) if isinstance(each, str) else each for each in nodes)}
    return {name: known[name] for name in sorted(known)}


def _carry_out(strategy: PlacementStrategy, request: PlacementRequest) -> Sequence[str]:
    try:
        return strategy(request)
    except ValueError:
        raise
    except Exception as error:
        raise PlacementError(f"the placement strategy failed: {type(error).__name__}: {error}") from error


def _check(owners: Sequence[str], known: Mapping[str, PlacementNode], partitions: int) -> Sequence[str]:
    if not isinstance(owners, list | tuple) or len(owners) != partitions:
        raise PlacementError(f"the placement strategy must return a list of {partitions:,} owners, one per partition")
    for partition, owner in enumerate(owners):
        if owner not in known:
            raise PlacementError(
                f"the placement strategy gave partition {partition} to {owner!r}, which is not one of the nodes"
            )
    return owners
