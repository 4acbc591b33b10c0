"""Policy `need`: by the slots that the projects would use within their quotas (P10, X6).

Each node reports its own part of the demand (evenlane/engine/telemetry/tenants/load.py): the slots in use, and those
that its waits for `fairness`, `handlers_busy` and `headroom` would use. Waits for a quota, a resume, an endpoint or
`concurrency` aren't part of it, as another node would end none of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evenlane.engine.base.durations import format_duration
from evenlane.engine.base.plural import format_count
from evenlane.engine.control.scaling.erlang import nodes_needed
from evenlane.engine.control.scaling.policy import Proposal

if TYPE_CHECKING:
    from evenlane.engine.control.scaling.policy import Need, Observation
    from evenlane.ring.membership.records import LoadRecord, NodeRecord

MARGIN = 1.15
"""Demand over the present one that must fit before nodes are removed."""

_ROUNDING = 1e-9
_MOST = 1e9


def propose(need: Need, seen: Observation, most: int) -> Proposal:
    """Propose a number of nodes, at most `most`. Nodes are removed only if all of them report their load."""
    stays = seen.replicas
    loads = [node.load for node in seen.nodes.values() if node.load is not None and node.slots]
    slots = min((node.slots for node in seen.nodes.values() if node.slots), default=0)
    if not loads:
        return Proposal(stays, stays, "no node reports its load")
    demand, handling_s = sum(load.wanted for load in loads), _mean_handling(loads)

    def suffice(margin: float) -> int:
        by_slots = nodes_needed(margin * demand, slots, handling_s, need.quantile, need.wait_s, most)
        return max(by_slots, _by_cpu(need, seen, margin))

    up, down = suffice(1.0), suffice(MARGIN)
    silent = len(seen.nodes) - len(loads)
    if silent:
        down = max(down, stays)
    why = _explain(need, seen, demand, up, most, silent)
    if up > most:
        why += f"; {most} is the most that scaling_max and the partitions allow"
    return Proposal(max(min(up, most), stays), min(down, most, stays), why)


def _mean_handling(loads: list[LoadRecord]) -> float:
    """Return the mean time of a handler in s, weighted by the messages: used slots are rate times this time."""
    ended = sum(load.used / load.handling for load in loads if load.handling > 0)
    return sum(load.used for load in loads if load.handling > 0) / ended if ended else 0.0


def _by_cpu(need: Need, seen: Observation, margin: float) -> int:
    """Return the number of nodes that keep the mean CPU at or below the threshold; 0 without one."""
    if not need.cpu_above:
        return 0
    return math.ceil(margin * _sum_cpu(seen) / need.cpu_above - _ROUNDING)


def _sum_cpu(seen: Observation) -> float:
    """Return the sum of the nodes' shares. Anyone may write a record, so it is bounded."""
    return min(_MOST, sum(node.cpu for node in seen.nodes.values()))


def _explain(need: Need, seen: Observation, demand: float, up: int, most: int, silent: int) -> str:
    by_cpu = _by_cpu(need, seen, 1.0)
    nodes = format_count(up, "node")
    if by_cpu >= up > 1:
        text = (
            f"the CPU of {_sum_cpu(seen):.2f} nodes is used, and {nodes} keep the mean at {need.cpu_above:.0%} or less"
        )
    else:
        slots = sum(node.slots for node in seen.nodes.values())
        target = f"p{100 * need.quantile:.12g} wait {format_duration(need.wait_s)}"
        at_least = "at least " if up > most else ""
        text = f"{demand:,.1f} of {slots:,} slots would be used within the quotas, and {target} needs {at_least}{nodes}"
    if silent:
        text += f"; {format_count(silent, 'node', 'reports', 'report')} no load yet"
    return text


def explain_blocked(nodes: dict[str, NodeRecord]) -> str:
    """Return a clause about the messages that no further node would help; "" if there are none."""
    counts: dict[str, int] = {}
    for node in nodes.values():
        for reason, messages in (node.load.blocked if node.load is not None else {}).items():
            counts[reason] = counts.get(reason, 0) + messages
    if not counts:
        return ""
    listed = [f"{count:,} for {reason}" for reason, count in sorted(counts.items(), key=lambda each: -each[1])]
    return f"messages wait for what no node can give: {', '.join(listed)}"
