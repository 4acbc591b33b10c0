"""Keeps a partition with nodes that can read its records: a newer release may have written some. Pure."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.ring.membership.records import NodeRecord


def place_on_readers(
    placement: Sequence[str | None], nodes: Mapping[str, NodeRecord], present: Mapping[int, str]
) -> Sequence[str | None]:
    """The placement, except for partitions that some node reports as unreadable: each goes to a fit node that reads
    them, preferably the one that has it at `present`, or else the one with the fewest partitions. Without such a node
    it stays as placed.
    """
    needed = _needed(nodes)
    if not needed:
        return placement
    changed, counts = list(placement), Counter(placement)
    for partition in sorted(needed):
        if partition >= len(changed):
            continue
        able = [name for name, node in sorted(nodes.items()) if _can_read(node, partition, needed[partition])]
        if not able or changed[partition] in able:
            continue
        counts[changed[partition]] -= 1
        home = present.get(partition)
        changed[partition] = home if home in able else min(able, key=counts.__getitem__)
        counts[changed[partition]] += 1
    return changed


def _needed(nodes: Mapping[str, NodeRecord]) -> dict[int, dict[str, int]]:
    """The format that a node must be able to read, by partition and kind."""
    needed: dict[int, dict[str, int]] = {}
    for node in nodes.values():
        for partition, (kind, newest) in node.unreadable.items():
            formats = needed.setdefault(partition, {})
            formats[kind] = max(formats.get(kind, 0), newest)
    return needed


def _can_read(node: NodeRecord, partition: int, needed: Mapping[str, int]) -> bool:
    return (
        node.is_fit
        and partition not in node.unreadable
        and all(node.reads.get(kind, 1) >= newest for kind, newest in needed.items())
    )
