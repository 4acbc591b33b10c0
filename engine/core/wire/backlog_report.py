"""What a node tells all producers each second, on core NATS: the backlog, by partition, of projects with a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.ring.hashing import partition_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from evenlane.quota.topics.topic import Accepted

_MOST_ENTRIES = 4_000  # in one message: some 300 KB


class BacklogEntry(msgspec.Struct, array_like=True, gc=False):
    """`count` messages of a project wait in a partition: due, in flight or delayed.

    It holds what the lane has up to the sequence `lane`, and what the later stream has up to `later`.
    """

    partition: int
    project: str
    count: int
    lane: int
    later: int


class BacklogReport(msgspec.Struct):
    """`at` is unix ns by the store's clock; `number` rises by one with each message of a node's life."""

    node: str
    number: int
    at: int
    entries: list[BacklogEntry]


_reports = msgspec.json.Decoder(BacklogReport)


def subject(env: str, node: str) -> str:
    """What a node's reports are published to; `*` for those of all nodes."""
    return f"backlog.{env}.{node.replace('.', '_')}"


def encoded(node: str, number: int, at: int, entries: Sequence[BacklogEntry]) -> Iterator[bytes]:
    """As many messages as it takes, each complete in itself."""
    for start in range(0, len(entries), _MOST_ENTRIES):
        yield msgspec.json.encode(BacklogReport(node, number, at, list(entries[start : start + _MOST_ENTRIES])))
        number += 1


def decoded(body: bytes) -> BacklogReport | None:
    """None for what no node has written."""
    try:
        return _reports.decode(body)
    except UNREADABLE:
        return None


def partitions_of(project: str, accepted: Accepted, partitions: int) -> tuple[int, ...]:
    """All that its groups lie on, those included that are only emptied."""
    spread = accepted.topic.spread
    slots = {group % spread for group in (*range(min(accepted.active, spread)), *accepted.draining)}
    return tuple(sorted({partition_of(project, slot, spread, partitions) for slot in slots}))
