"""A node's share of a topic: first its own part, that of the groups on its partitions; then what was lent and borrowed.

Each group brings its part along, so over all nodes the parts add up to 1 and no node needs to ask another
(docs/adr/0015). Groups that are only emptied count, too, but never for more than half of the topic altogether: else
their queues would come on top of its quota. Weight and reserve go by the part, or by the own part if that is more: who
lends of its rate what it doesn't use must not lose slots by it, and so use less still, and lend more. A cap on
concurrency goes by the own part. What a bucket forgoes by being late goes by its rate
(`evenlane.quota.rates.gcra.Pace`), so the burst needs no split.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenlane.quota.topics.topic import Topic

WHOLE = 1.0
_LEAST_QPS = 1 / 60
"""What a node has that owns nothing of a topic, but has a message of it: it waits for a loan, not for ever."""
_LEAST_WEIGHT = 0.01


class NodeShare(NamedTuple):
    """How many of a topic's groups a node has, and which part of the topic they bring along."""

    groups: int
    part: float


def node_share(
    project: str, topic: Topic, draining: Sequence[int], is_mine: Callable[[int], bool], partitions: int
) -> NodeShare:
    """By the partitions that are the node's. Costs a look-up for each of `spread`, and for each group that drains."""
    slots = [
        slot
        for slot in range(min(topic.spread, topic.groups))
        if is_mine(partition_of(project, slot, topic.spread, partitions))
    ]
    # groups slot, slot + spread, slot + 2 spread, ...
    active = sum((topic.groups - 1 - slot) // topic.spread + 1 for slot in slots)
    if not draining:
        return NodeShare(active, active / topic.groups)
    emptied = sum(is_mine(partition_of(project, group, topic.spread, partitions)) for group in draining)
    each = min(1.0, topic.groups / len(draining))
    return NodeShare(active + emptied, (active + each * emptied) / (topic.groups + each * len(draining)))


def share_of(topic: Topic, own: NodeShare, part: float) -> Topic:
    """The topic's rules for the node's groups, with this part of its rate; for one group at least, as there may be
    messages of a group that was taken away.
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
    """The lower of two caps; an endpoint's is each node's own, and isn't shared out."""
    caps = [cap for cap in (one, other) if cap is not None]
    return min(caps) if caps else None
