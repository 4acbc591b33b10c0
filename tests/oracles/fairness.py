"""An oracle of fairness: the service of each tenant, read off a trace, interval by interval.

Start-time fair queueing promises, for any two flows and any interval in which both are backlogged throughout,

    | S_i / w_i - S_j / w_j |  <=  l_i / w_i + l_j / w_j

with S the service in the interval, w the weight, l the longest message (Goyal, Vin, Cheng, SIGCOMM 1996, theorem 1).
This module computes the left side from the trace alone.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping


class Trace:
    """A trace: tenants become backlogged, are served, and end. `weights` are by tenant."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self.weights = weights
        self._events: list[tuple[str, str, float]] = []
        self.longest: dict[str, float] = defaultdict(float)

    def begin(self, tenant: str) -> None:
        """From now on the tenant is backlogged."""
        self._events.append(("begin", tenant, 0.0))

    def end(self, tenant: str) -> None:
        self._events.append(("end", tenant, 0.0))

    def serve(self, tenant: str, amount: float) -> None:
        self._events.append(("serve", tenant, amount))
        self.longest[tenant] = max(self.longest[tenant], amount)

    def gap(self, one: str, other: str) -> float:
        """The largest left side, over all intervals in which both were backlogged throughout."""
        return max((max(levels) - min(levels) for levels in self._stretches(one, other)), default=0.0)

    def bound(self, one: str, other: str, in_flight: int = 1) -> float:
        """The right side, for flows with up to `in_flight` messages at a time."""
        return in_flight * sum(self.longest[tenant] / self.weights[tenant] for tenant in (one, other))

    def _stretches(self, one: str, other: str) -> Iterator[list[float]]:
        """For each stretch in which both are backlogged: S_one / w_one - S_other / w_other after each event in it."""
        backlogged: set[str] = set()
        levels: list[float] = []
        for kind, tenant, amount in [*self._events, ("end", one, 0.0)]:
            if tenant not in (one, other):
                continue
            if kind == "serve" and levels:
                sign = 1 if tenant == one else -1
                levels.append(levels[-1] + sign * amount / self.weights[tenant])
            elif kind == "begin":
                backlogged.add(tenant)
                levels = [0.0] if len(backlogged) == 2 else []
            elif kind == "end":
                backlogged.discard(tenant)
                if levels:
                    yield levels
                levels = []


def round_robin_by_unit(weights: Mapping[str, int], rounds: int) -> list[str]:
    """The order of a fluid server in whole units: each tenant gets `weight` units per round, spread as evenly as
    possible. It shows how small the gap can get.
    """
    finish = [((n + 1) / weight, tenant) for tenant, weight in weights.items() for n in range(weight * rounds)]
    return [tenant for _, tenant in sorted(finish)]
