"""How a topic's rate is divided between nodes that want more or less of it than their groups bring along. Pure.

Parts are fractions of the whole topic. Each node has its own part, by the groups that it owns, and wants some part:
what it could use. First each gets what it wants of its own. Then what nobody wants of his own goes to those who are
short, max-min: who lacks little gets all of it, and the rest in even parts. What is left then is spread evenly, so that
whoever gets more to do in the next second can begin with it.

A node keeps a little of its own in any case, so that work that comes to it is seen to wait; and one that has nothing of
its own, but something to do (a group that was taken away and isn't empty yet), gets at least as little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.quota.rates.max_min import fair_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST = 0.02
"""The part of its own that a node keeps, and of the whole that one gets which has none and wants some."""


def divide(own: Mapping[str, float], wants: Mapping[str, float]) -> dict[str, float]:
    """The part of each node in `own`; together as much as they own. `wants` has the same nodes."""
    whole = sum(own.values())
    due = {node: min(part, max(wants[node], LEAST * part)) for node, part in own.items()}
    homeless = [node for node, part in own.items() if part == 0 and wants[node] > 0]
    if homeless:
        _make_room(due, homeless, wants, whole)
    short = {node: wants[node] - part for node, part in due.items() if wants[node] > part}
    spare = whole - sum(due.values())
    # Max-min, with even weights.
    for node, more in zip(short, fair_shares(max(0.0, spare), [1.0] * len(short), list(short.values())), strict=True):
        due[node] += more
        spare -= more
    each = max(0.0, spare) / len(due)
    return {node: part + each for node, part in due.items()}


def _make_room(due: dict[str, float], homeless: list[str], wants: Mapping[str, float], whole: float) -> None:
    """Those who own nothing get a little, of what the others were to have."""
    asked = {node: min(wants[node], LEAST * whole) for node in homeless}
    taken = sum(asked.values())
    missing = taken - (whole - sum(due.values()))
    if missing > 0:
        scale = max(0.0, 1 - missing / sum(due.values()))
        due.update({node: part * scale for node, part in due.items()})
    due.update(asked)
