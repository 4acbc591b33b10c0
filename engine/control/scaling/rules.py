"""Policy `rules`: by CPU and projects per node (P10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.plural import format_count
from evenlane.engine.control.scaling.policy import Proposal

if TYPE_CHECKING:
    from evenlane.engine.control.scaling.policy import Observation, Rules

CALM = 0.8
"""Mean CPU that the other nodes may have after a removal, as a share of the threshold."""


def propose(rules: Rules, seen: Observation) -> Proposal:
    """Propose one node more, one fewer, or none. None is removed if the others would then be near the threshold of CPU:
    it would be added again after the rest.
    """
    stays = seen.replicas
    if not seen.nodes:
        return Proposal(stays, stays, "no node reports how busy it is")
    name, busiest = max(((name, node.cpu) for name, node in seen.nodes.items()), key=lambda each: (each[1], each[0]))
    mean = sum(node.projects for node in seen.nodes.values()) / len(seen.nodes)
    if rules.cpu_above and busiest > rules.cpu_above:
        return Proposal(stays + 1, stays, f"node {name} uses {busiest:.0%} of its CPU, more than {rules.cpu_above:.0%}")
    projects = f"a node has {mean:.1f} projects on average"
    if rules.projects_above and mean > rules.projects_above:
        return Proposal(stays + 1, stays, f"{projects}, more than {rules.projects_above:g}")
    if rules.projects_below and mean < rules.projects_below:
        few = f"{projects}, fewer than {rules.projects_below:g}"
        then = sum(node.cpu for node in seen.nodes.values()) / max(1, len(seen.nodes) - 1)
        if rules.cpu_above and then > CALM * rules.cpu_above:
            return Proposal(stays, stays, f"{few}; but one node fewer would put the others at {then:.0%} of their CPU")
        return Proposal(stays, stays - 1, few)
    of = format_count(len(seen.nodes), "node")
    return Proposal(stays, stays, f"{projects}, and the busiest of {of} uses {busiest:.0%} of its CPU")
