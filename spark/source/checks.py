"""Checks that a meter record's columns are consistent, before they are used unchanged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.records.meter_record import COUNTERS, LANE_COLUMNS, TOPIC_COLUMNS, WAITED
from evenlane.engine.core.wire.reason_codes import REASONS
from evenlane.engine.core.wire.varint_columns import numbers, unpack

if TYPE_CHECKING:
    from collections.abc import Container, Sequence

    from evenlane.engine.core.records.meter_record import MeterRecord

BUCKET = ("bucket", "count")
QUEUE = frozenset({
    "lane", "topic", "group", "band", "waits", "backlog", "oldest", "in_flight", "longest", *COUNTERS,
    *(WAITED + reason for reason in REASONS),
})  # fmt: skip
_MOST_BARE = 65_536  # lanes without a queue: more than there are partitions in any environment
_SHORT = ("group", "partition", "bucket")  # columns of 32 bits
_WORD = 8  # bytes
_MOST, _MOST_SHORT = 2**63 - 1, 2**31 - 1
_MOST_LONG = 2**48
"""Limit of a counter or gauge: beyond it sums overflow, and doubles aren't exact; 9,000 years in ms."""
_LONG_BYTES = 6
_NANOSECONDS = ("since",)


def is_alike(one: MeterRecord, other: MeterRecord) -> bool:
    """Whether rows of one record may refer to the other's lanes, topics and priorities."""
    return (
        one.lanes == other.lanes
        and one.projects == other.projects
        and one.priorities == other.priorities
        and one.lane_columns == other.lane_columns
        and one.topic_columns == other.topic_columns
    )


def check(record: MeterRecord, *, shared: bool) -> None:
    """Check each column: a record is invalid if it refers to a row outside of a table. Raises ValueError. With
    `shared`, lanes and topics were checked before.
    """
    if not shared:
        _columns(record.lane_columns, record.lanes, LANE_COLUMNS)
        _columns(record.topic_columns, len(record.projects), TOPIC_COLUMNS)
    queues, rows = record.queue_columns, record.queues
    _columns(queues, rows, QUEUE)
    _columns(record.bucket_columns, record.buckets, BUCKET)
    for name, there in (("lane", record.lanes), ("topic", len(record.projects)), ("band", len(record.priorities))):
        if rows and max(_values(queues.get(name, b"\0"), rows), default=0) >= there:
            raise ValueError(f"a queue names a {name} that isn't there")
    if sum(_values(queues.get("waits", b"\0"), rows)) != record.buckets:
        raise ValueError("the buckets of waits aren't those of the queues")
    if record.lanes > rows + _MOST_BARE:
        raise ValueError("it has impossibly many lanes")
    if max(record.run, record.number, record.after, record.at) > _MOST or record.slots > _MOST_SHORT:
        raise ValueError("a number is impossibly large")
    if min(record.run, record.number, record.after, record.at, record.slots) < 0:
        raise ValueError("a number is negative")


def bare_lanes(record: MeterRecord) -> range:
    """Return the rows of lanes without a queue."""
    highest = max(_values(record.queue_columns.get("lane", b"\0"), record.queues), default=0) if record.queues else -1
    return range(highest + 1, record.lanes)


def _columns(columns: dict[str, bytes], rows: int, names: Container[str]) -> None:
    for name, column in columns.items():
        if name not in names:
            continue
        width = column[0] if column else _WORD + 1
        if width > _WORD or len(column) != 1 + width * rows:
            raise ValueError(f"a column of {rows} numbers has {len(column)} bytes")
        if width >= 4 and name in _SHORT and max(_values(column, rows)) > _MOST_SHORT:
            raise ValueError(f"a {name} is impossibly large")
        if width > _LONG_BYTES and max(_values(column, rows)) > (_MOST if name in _NANOSECONDS else _MOST_LONG):
            raise ValueError(f"a {name} is impossibly large")


def _values(column: bytes, rows: int) -> Sequence[int]:
    """Return a column's numbers; zeros may be omitted."""
    return column[1:] if column[0] <= 1 else numbers(unpack(column, rows))
