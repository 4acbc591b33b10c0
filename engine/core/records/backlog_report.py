"""The backlog report that a node sends to all producers every second, on core NATS: the backlog of limited projects, by
partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenlane.quota.topics.topic import Accepted
    from evenlane.ring.hashing import Layout

_MOST_ENTRIES = 4_000  # per message: some 300 KB


class BacklogEntry(msgspec.Struct, array_like=True, gc=False):
    """The number of a project's messages that wait in a partition: due, in flight or delayed.

    `lane` and `later` are the sequences up to which the count covers the lane and the delay stream.
    """

    partition: int
    project: str
    count: int
    lane: int
    later: int


class BacklogReport(msgspec.Struct):
    """`at` is unix ns by the store's clock; `number` rises by one with each message during a node's life."""

    node: str
    number: int
    at: int
    entries: list[BacklogEntry]


_reports = msgspec.json.Decoder(BacklogReport)


def subject(cluster: str, node: str) -> str:
    """The subject of a node's reports; `*` for those of all nodes."""
    return f"backlog.{cluster}.{node.replace('.', '_')}"


def request_subject(cluster: str, project: str) -> str:
    """The subject on which a producer that may not read reports about all projects asks for those of one; `*` for the
    requests about all projects.
    """
    return f"ask.{cluster}.backlog.{project}"


def encode_report(node: str, number: int, at: int, entries: Sequence[BacklogEntry]) -> Iterator[bytes]:
    """The reports, in as many messages as needed, each complete in itself."""
    for start in range(0, len(entries), _MOST_ENTRIES):
        yield msgspec.json.encode(BacklogReport(node, number, at, list(entries[start : start + _MOST_ENTRIES])))
        number += 1


def decode_report(body: bytes) -> BacklogReport | None:
    """None for bytes that no node has written."""
    try:
        return _reports.decode(body)
    except UNREADABLE:
        return None


def partitions_of(project: str, accepted: Accepted, partitions: int, layout: Layout) -> tuple[int, ...]:
    """All partitions that the project's groups are in, groups being drained included."""
    spread = accepted.topic.spread
    slots = {group % spread for group in (*range(min(accepted.active, spread)), *accepted.draining)}
    return tuple(sorted({partition_of(project, slot, spread, partitions, layout) for slot in slots}))
