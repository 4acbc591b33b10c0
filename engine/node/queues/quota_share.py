"""Computes a node's share of a topic: first its own part, from the groups on its partitions; then lent and borrowed
parts.

Each group brings its part along, so over all nodes the parts add up to 1, and no node needs to ask another
(docs/adr/0015). Groups that are being drained count, too, but together for no more than half of the topic; otherwise
their queues would come on top of its quota.

Weight and reserve follow the part, or the node's own part if that is larger: a node that lends unused rate must not
lose slots for it, or it would use even less, and lend more. A cap on concurrency follows the node's own part. The
credit of a token bucket is proportional to its rate (`evenlane.quota.rates.gcra.Pace`), so the burst needs no split.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.engine.cluster.cluster_config import ClusterConfig
    from evenlane.quota.topics.topic import Topic

WHOLE = 1.0
_LEAST_QPS = 1 / 60
"""The rate (msg/s) of a node that owns none of a topic's groups but has a message of it: the message waits for a loan,
but not for ever.
"""
_LEAST_WEIGHT = 0.01


class NodeShare(NamedTuple):
    """The number of a topic's groups on a node, and the fraction of the topic that they bring along."""

    groups: int
    part: float


def node_share(
    project: str, topic: Topic, draining: Sequence[int], is_mine: Callable[[int], bool], cluster_config: ClusterConfig
) -> NodeShare:
    """The share that the node's partitions bring. Costs one look-up per slot of `spread` and per group
    being drained.
    """
    partitions, layout = cluster_config.partitions, cluster_config.layout
    slots = [
        slot
        for slot in range(min(topic.spread, topic.groups))
        if is_mine(partition_of(project, slot, topic.spread, partitions, layout))
    ]
    # groups slot, slot + spread, slot + 2 spread, ...
    active = sum((topic.groups - 1 - slot) // topic.spread + 1 for slot in slots)
    if not draining:
        return NodeShare(active, active / topic.groups)
    draining_here = sum(is_mine(partition_of(project, group, topic.spread, partitions, layout)) for group in draining)
    each = min(1.0, topic.groups / len(draining))
    return NodeShare(active + draining_here, (active + each * draining_here) / (topic.groups + each * len(draining)))


def share_of(topic: Topic, own: NodeShare, part: float) -> Topic:
    """The topic's rules for the node's groups, with the fraction `part` of its rate. They apply to at least one group,
    as there may be messages of a group that was removed.
    """
    pushed = topic.push.get("concurrency") if topic.push is not None else None
    if part >= WHOLE and own.groups >= topic.groups:
        return topic if pushed is None else replace(topic, concurrency=_least(topic.concurrency, pushed))
    return replace(
        topic,
        qps=topic.qps * part or min(_LEAST_QPS, topic.qps),
        groups=max(1, own.groups),
        weight=max(topic.weight * max(own.part, part), _LEAST_WEIGHT),
        reserve=topic.reserve * max(own.part, part),
        concurrency=_least(None if topic.concurrency is None else max(1, ceil(topic.concurrency * own.part)), pushed),
    )


def _least(one: int | None, other: int | None) -> int | None:
    """The lower of two caps. An endpoint's cap applies to each node as it is and isn't divided."""
    caps = [cap for cap in (one, other) if cap is not None]
    return min(caps) if caps else None
