"""Places partitions on nodes: a pure function of the nodes, the loads and the present owners.

One setting selects the strategy. `range` and `round-robin` are those of Kafka's assignors, for comparison; they
consider neither loads nor present owners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.ring.placement.bounded import bounded_ring

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Strategy = Callable[[Sequence[str], Sequence[float], Mapping[int, str]], list[int]]


def place(
    nodes: Sequence[str], loads: Sequence[float], present: Mapping[int, str], strategy: str = "bounded-ring"
) -> list[str | None]:
    """The owner of each partition; None only if there are no nodes.

    `loads` in msg/s, one per partition. `present` may name nodes that are gone, and omit partitions. The order of
    `nodes` doesn't matter. Raises ValueError for an unknown strategy or an invalid load.
    """
    if strategy not in _STRATEGIES:
        raise ValueError(f"strategy {strategy!r} is unknown: the strategies are {', '.join(STRATEGIES)}")
    ranked = sorted(set(nodes))
    if not ranked:
        return [None] * len(loads)
    return [ranked[owner] for owner in _STRATEGIES[strategy](ranked, loads, present)]


def _range(nodes: Sequence[str], loads: Sequence[float], _present: Mapping[int, str]) -> list[int]:
    """Neighbouring partitions together; the first nodes have one more."""
    each, more = divmod(len(loads), len(nodes))
    return [node for node in range(len(nodes)) for _ in range(each + (node < more))]


def _round_robin(nodes: Sequence[str], loads: Sequence[float], _present: Mapping[int, str]) -> list[int]:
    return [partition % len(nodes) for partition in range(len(loads))]


_STRATEGIES: Mapping[str, Strategy] = {"bounded-ring": bounded_ring, "range": _range, "round-robin": _round_robin}
STRATEGIES: tuple[str, ...] = tuple(_STRATEGIES)
