"""A node's static share of a topic: that of the groups on its partitions.

Each group brings `qps / groups` along, so over all nodes the shares add up to the topic's rate and no node needs to ask
another (docs/adr/0015). What counts for the whole topic (burst, weight, reserve, concurrency) is split alike.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from quota.topic import Topic


def groups_here(project: str, topic: Topic, mine: Collection[int], partitions: int) -> int:
    """How many of the topic's groups lie on the partitions `mine`. Costs a look-up for each of `spread`."""
    if len(mine) >= partitions:
        return topic.groups
    return sum(
        (topic.groups - 1 - slot) // topic.spread + 1  # groups slot, slot + spread, slot + 2 spread, ...
        for slot in range(min(topic.spread, topic.groups))
        if partition_of(project, slot, topic.spread, partitions) in mine
    )


def share_of(topic: Topic, groups: int) -> Topic:
    """The topic's rules for so many of its groups; at least one, as a group that was removed may have a backlog."""
    groups = max(1, groups)
    pushed = topic.push.get("concurrency") if topic.push is not None else None
    if groups >= topic.groups:
        return topic if pushed is None else replace(topic, concurrency=_least(topic.concurrency, pushed))
    part = groups / topic.groups
    return replace(
        topic,
        qps=topic.qps * part,
        groups=groups,
        burst=ceil(topic.burst * part),
        weight=topic.weight * part,
        reserve=topic.reserve * part,
        concurrency=_least(None if topic.concurrency is None else max(1, ceil(topic.concurrency * part)), pushed),
    )


def _least(one: int | None, other: int | None) -> int | None:
    """The lower of two caps; an endpoint's is each node's own, and isn't shared out."""
    caps = [cap for cap in (one, other) if cap is not None]
    return min(caps) if caps else None
