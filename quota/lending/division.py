"""Divides a topic's rate between nodes that want more or less of it than their groups bring along. Pure.

Parts are fractions of the whole topic. Each node has its own part, from the groups that it owns, and wants some part:
what it could use. First, each node gets what it wants of its own part. Then unused parts go to nodes that are short,
max-min: a node that lacks little gets all of it, and the rest is shared evenly. The remainder is spread evenly over all
nodes, so that a node with more work in the next second can start at once.

A node always keeps a little of its own part, so that its shortage shows once it has work. A node without a part of its
own, but with work (from a group that was removed and isn't empty yet), also gets at least a little.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.quota.rates.max_min import fair_shares

if TYPE_CHECKING:
    from collections.abc import Mapping

LEAST = 0.02
"""The fraction of its own part that a node keeps, and the fraction of the whole for a node that owns nothing and wants
some.
"""


def divide(own: Mapping[str, float], wants: Mapping[str, float]) -> dict[str, float]:
    """The part of each node in `own`; the sum stays the same. `wants` has the same nodes."""
    whole = sum(own.values(), 0.0)
    due = {node: min(part, max(wants[node], LEAST * part)) for node, part in own.items()}
    homeless = [node for node, part in own.items() if part == 0 and wants[node] > 0]
    if homeless:
        _make_room(due, homeless, wants, whole)
    short = {node: wants[node] - part for node, part in due.items() if wants[node] > part}
    spare = whole - sum(due.values(), 0.0)
    # Max-min, with even weights.
    for node, more in zip(short, fair_shares(max(0.0, spare), [1.0] * len(short), list(short.values())), strict=True):
        due[node] += more
        spare -= more
    each = max(0.0, spare) / len(due)
    return {node: part + each for node, part in due.items()}


def _make_room(due: dict[str, float], homeless: list[str], wants: Mapping[str, float], whole: float) -> None:
    """Give nodes that own nothing a little, out of the other nodes' parts."""
    asked = {node: min(wants[node], LEAST * whole) for node in homeless}
    taken = sum(asked.values(), 0.0)
    missing = taken - (whole - sum(due.values(), 0.0))
    if missing > 0:
        scale = max(0.0, 1 - missing / sum(due.values(), 0.0))
        due.update({node: part * scale for node, part in due.items()})
    due.update(asked)
