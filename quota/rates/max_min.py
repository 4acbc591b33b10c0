"""Weighted max-min fair shares by water filling (Bertsekas and Gallager, Data Networks, 6.5.2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def fair_shares(capacity: float, weights: Sequence[float], demands: Sequence[float]) -> list[float]:
    """The share of each in the capacity: none gets more than it demands, and what one leaves goes to the others by
    weight.

    No share can be raised without lowering that of one with less per weight. Any unit; weights above 0.
    """
    shares = [0.0] * len(weights)
    level = capacity  # left for those whose demand isn't met yet
    thirsty = float(sum(weights))
    for one in sorted(range(len(weights)), key=lambda each: demands[each] / weights[each]):
        fair = level * weights[one] / thirsty if thirsty > 0 else 0.0
        shares[one] = min(demands[one], fair)
        level -= shares[one]
        thirsty -= weights[one]
    return shares
