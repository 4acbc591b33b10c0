"""Max-min fair shares, found by pouring: the water level per unit of weight is searched for by halving.

At level x everybody has min(demand, weight * x), which rises with x; the fair shares are those of the level at which
they use up the capacity (or, if all demands fit in, the demands).
"""

from collections.abc import Sequence


def poured(capacity: float, weights: Sequence[float], demands: Sequence[float]) -> list[float]:
    """What each gets; the same units in and out."""

    def at(level: float) -> list[float]:
        return [min(demand, weight * level) for weight, demand in zip(weights, demands, strict=True)]

    if sum(demands) <= capacity:
        return list(demands)
    dry, full = 0.0, max(demand / weight for weight, demand in zip(weights, demands, strict=True))
    for _ in range(200):
        level = (dry + full) / 2
        dry, full = (level, full) if sum(at(level)) < capacity else (dry, level)
    return at(full)
