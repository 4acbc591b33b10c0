"""An oracle of max-min fair shares by water filling: the level per unit of weight is found by bisection.

At level x, each gets min(demand, weight * x), which rises with x. The fair shares are those of the level that uses up
the capacity or, if all demands fit, the demands.
"""

from collections.abc import Sequence


def poured(capacity: float, weights: Sequence[float], demands: Sequence[float]) -> list[float]:
    """The share of each, in the unit of capacity and demands."""

    def at(level: float) -> list[float]:
        return [min(demand, weight * level) for weight, demand in zip(weights, demands, strict=True)]

    if sum(demands) <= capacity:
        return list(demands)
    dry, full = 0.0, max(demand / weight for weight, demand in zip(weights, demands, strict=True))
    for _ in range(200):
        level = (dry + full) / 2
        dry, full = (level, full) if sum(at(level)) < capacity else (dry, level)
    return at(full)
