"""The record that a node publishes to `METER_<env>` each interval: backlog and counters of each queue that changed.

A record is a byte with its version, one with its compression (z: zlib, x: LZMA, which makes a large one a fifth
smaller), then msgpack of three tables: lanes (a partition under an epoch), topics, and queues, which refer to a lane
and a topic by index. Tables are made of columns (engine/core/wire/varint_columns.py). A missing column is all zeros,
and a reader ignores unknown columns, so columns may be added without a new version.

Counters begin at 0 with the epoch and never fall, so a record that is lost or repeated changes no total. A record has
every queue that changed since the last record that the store has acknowledged (`after`), and others now and then.
"""

from __future__ import annotations

import lzma
import zlib
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.core.wire.varint_columns import join, numbers, pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VERSION = 1
INTERVAL_S = 10.0
"""Default time between two records of a node, s."""
REFRESH = 30
"""Each queue is in at least one out of this many records, changed or not."""

LANE_COLUMNS = ("partition", "epoch", "since", "closed")
"""`since` is when the epoch's counters began, unix ns. `closed` is 1 if the node has handed the partition over: these
rows are final, except for handlers that are still running. Lanes that no queue refers to come last: they say which node
owns the partition now, so that a backlog reported by a killed owner is known to be obsolete.
"""
TOPIC_COLUMNS = ("qps", "may_use", "weight", "reserve", "concurrency", "fairness")
"""In thousandths, plus 1000; 0: unknown, or not set. `may_use` is the node's part of `qps` in msg/s, loans included;
`fairness` is the tenant's share of handling time divided by its due share on this node.
"""
COUNTERS = ("arrived", "handled", "retried", "dead", "expired", "dropped", "attempts", "dwelt", "ran")
"""Cumulative per queue and epoch. `arrived` are messages that arrived under this epoch: put, due, or found at the
takeover. `retried` are failed attempts that will be retried; `dead`, `expired` and `dropped` are the other ends of
messages. `attempts` are handlers started, `dwelt` the time that their messages had waited, `ran` the time that they
ran, both in ms.
"""
GAUGES = ("backlog", "oldest", "in_flight", "longest")
"""`backlog` is the number of messages waiting now; `oldest` the wait of the oldest in units of 10 ms plus 1 (0:
unknown); `longest` (ms) the longest wait that ended since the last record.
"""
WAITED = "waited."
"""The prefix of a column for a reason (engine/telemetry/wait_reasons.py): the time that messages waited for it, times
their number, in tenths of a second.
"""
_PLACES = ("lane", "topic", "group", "band")
_MOST_BYTES = 64 << 20  # of a decompressed record
_MOST_ROWS = 4_000_000
_SMALL = 8 << 10  # bytes; for smaller records, zlib is done before LZMA is set up
_LEVEL = 9


class Unreadable(ValueError):
    """The bytes are no record that this release can read; the text says why. `newer`: a later release may
    have written it.
    """

    def __init__(self, why: str, *, newer: bool = False) -> None:
        super().__init__(why)
        self.newer = newer


class LaneRow(NamedTuple):
    """See LANE_COLUMNS."""

    partition: int
    epoch: int
    since: int
    closed: bool


class TopicRow(NamedTuple):
    """See TOPIC_COLUMNS; None: unknown, or not set."""

    project: str
    qps: float | None = None
    may_use: float | None = None
    weight: float | None = None
    reserve: float | None = None
    concurrency: float | None = None
    fairness: float | None = None


class QueueRow(NamedTuple):
    """`lane` and `topic` are indices into their tables. Counters and gauges are in the units of the columns; `waited`
    is by reason; `waits` has (bucket, messages) of the buckets (engine/core/stats/wait_histogram.py) that changed,
    cumulative.
    """

    lane: int
    topic: int
    group: int
    band: int
    counters: tuple[int, ...]
    backlog: int
    oldest: int
    in_flight: int
    longest: int
    waited: Mapping[str, int]
    waits: Sequence[tuple[int, int]]


class Block(NamedTuple):
    """Rows of queues and their topics, packed once and written into many records. `lanes` and `projects` are those that
    the rows refer to; `queues` and `buckets` are numbers of rows. A column of zeros is left out.
    """

    lanes: tuple[LaneRow, ...] = ()
    projects: tuple[str, ...] = ()
    topic_columns: Mapping[str, bytes] = {}
    queues: int = 0
    queue_columns: Mapping[str, bytes] = {}
    buckets: int = 0
    bucket_columns: Mapping[str, bytes] = {}

    def with_fairness(self, ratios: Mapping[str, float]) -> Block:
        """The block with this fairness of each project."""
        if ratios.keys().isdisjoint(self.projects):
            return self
        fairness = pack([_thousandths(ratios.get(project)) for project in self.projects])
        return self._replace(topic_columns={**self.topic_columns, "fairness": fairness})

    def with_topics(self, topics: Sequence[TopicRow]) -> Block:
        """The block with these rows, one for each of its projects."""
        return self._replace(topic_columns=_topic_columns(topics))


class RecordHead(NamedTuple):
    """The head of a record. `run` is when the node began to count, unix ns; `number` counts its records from 1; `after`
    is the last earlier record that the store has acknowledged, 0 if none. `at` is the store's clock, unix ns; `span`
    the period (ns) that this record covers; `slots` the number of handlers that may run.
    """

    node: str
    run: int
    number: int
    after: int
    at: int
    span: int
    slots: int
    priorities: tuple[str, ...]


class MeterRecord(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A record as it is encoded; see RecordHead. Columns are by name."""

    node: str
    run: int
    number: int
    after: int = 0
    at: int
    span: int = 0
    slots: int = 0
    priorities: list[str]
    lanes: int = 0
    lane_columns: dict[str, bytes] = {}
    projects: list[str] = []
    topic_columns: dict[str, bytes] = {}
    queues: int = 0
    queue_columns: dict[str, bytes] = {}
    buckets: int = 0
    bucket_columns: dict[str, bytes] = {}

    def lane(self, column: str) -> bytearray:
        """One of LANE_COLUMNS, as words (engine/core/wire/varint_columns.py); likewise for the methods below."""
        return unpack(self.lane_columns.get(column, b"\0"), self.lanes)

    def topic(self, column: str) -> bytearray:
        return unpack(self.topic_columns.get(column, b"\0"), len(self.projects))

    def queue(self, column: str) -> bytearray:
        """`lane`, `topic`, `group`, `band`, one of COUNTERS or GAUGES, `waited.<reason>`, or `waits`: the number of
        buckets, in order, that belong to this queue.
        """
        return unpack(self.queue_columns.get(column, b"\0"), self.queues)

    def bucket(self, column: str) -> bytearray:
        """`bucket` or `count`."""
        return unpack(self.bucket_columns.get(column, b"\0"), self.buckets)


def encode(
    head: RecordHead,
    lanes: Sequence[LaneRow],
    topics: Sequence[TopicRow],
    queues: Sequence[QueueRow],
    ready: Block = Block(),  # noqa: B008 - immutable
) -> bytes:
    """Encode a record. It is smallest if neighbouring queues are alike, so sort them by project, group and band. The
    rows of `ready` come first: `lanes` begin with its lanes, `topics` are those after its projects, and queues index
    both.
    """
    rest = pack_block(lanes, topics, queues)
    record = MeterRecord(
        **head._asdict() | {"priorities": list(head.priorities)},
        lanes=len(lanes),
        lane_columns=_columns(LANE_COLUMNS, list(zip(*lanes, strict=True))),
        projects=[*ready.projects, *rest.projects],
        topic_columns=_join(ready.topic_columns, len(ready.projects), rest.topic_columns, len(rest.projects)),
        queues=ready.queues + rest.queues,
        queue_columns=_join(ready.queue_columns, ready.queues, rest.queue_columns, rest.queues),
        buckets=ready.buckets + rest.buckets,
        bucket_columns=_join(ready.bucket_columns, ready.buckets, rest.bucket_columns, rest.buckets),
    )
    plain = msgspec.msgpack.encode(record)
    if len(plain) < _SMALL:
        return _START + b"z" + zlib.compress(plain, _LEVEL)
    return _START + b"x" + lzma.compress(plain, lzma.FORMAT_XZ, lzma.CHECK_CRC32)


def pack_block(lanes: Sequence[LaneRow], topics: Sequence[TopicRow], queues: Sequence[QueueRow]) -> Block:
    """The rows in packed form."""
    buckets = [each for queue in queues for each in queue.waits]
    return Block(
        tuple(lanes),
        tuple(topic.project for topic in topics),
        _topic_columns(topics),
        len(queues),
        _queue_columns(queues),
        len(buckets),
        _columns(("bucket", "count"), list(zip(*buckets, strict=True))),
    )


def version_of(body: bytes) -> int | None:
    """The version that a record claims, readable or not; None if it is empty."""
    return body[0] if body else None


def decode(body: bytes) -> MeterRecord:
    """Raises Unreadable."""
    if not body or body[0] != VERSION:
        raise Unreadable(f"version {body[0] if body else 'none'} isn't known", newer=bool(body) and body[0] > VERSION)
    try:
        record = _decoder.decode(_unpack(body[1:2], body[2:]))
    except (zlib.error, lzma.LZMAError, *UNREADABLE) as error:
        raise Unreadable(str(error)) from error
    if not all(0 <= rows <= _MOST_ROWS for rows in (record.queues, record.lanes, record.buckets)):
        raise Unreadable("a table has an impossible number of rows")
    return record


def _unpack(how: bytes, packed: bytes) -> bytes:
    if how == b"z":
        return zlib.decompressobj().decompress(packed, _MOST_BYTES)
    if how == b"x":
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_BYTES).decompress(packed, _MOST_BYTES)
    raise Unreadable(f"compression {how!r} isn't known")


def _queue_columns(queues: Sequence[QueueRow]) -> dict[str, bytes]:
    reasons = sorted({reason for queue in queues for reason in queue.waited})
    columns = {
        **_columns(_PLACES, list(zip(*(queue[:4] for queue in queues), strict=True))),
        **_columns(COUNTERS, list(zip(*(queue.counters for queue in queues), strict=True))),
        **_columns(GAUGES, list(zip(*(queue[5:9] for queue in queues), strict=True))),
        **_columns(("waits",), [[len(queue.waits) for queue in queues]]),
    }
    for reason in reasons:
        columns[WAITED + reason] = pack([queue.waited.get(reason, 0) for queue in queues])
    return columns


def _topic_columns(topics: Sequence[TopicRow]) -> dict[str, bytes]:
    return _columns(TOPIC_COLUMNS, [[*map(_thousandths, each)] for each in zip(*topics, strict=True)][1:])


def _join(first: Mapping[str, bytes], count: int, second: Mapping[str, bytes], more: int) -> dict[str, bytes]:
    """The columns of two tables, concatenated."""
    if not count or not more:
        return {**first, **second}
    return {name: join(first.get(name, b"\0"), count, second.get(name, b"\0"), more) for name in {**first, **second}}


def _columns(names: Sequence[str], values: Sequence[Sequence[int]]) -> dict[str, bytes]:
    """The columns that aren't all zeros."""
    packed = {name: pack(column) for name, column in zip(names, values, strict=False)}
    return {name: column for name, column in packed.items() if column != b"\0"}


def _thousandths(value: object) -> int:
    return round(value * 1000) + 1000 if isinstance(value, (int, float)) else 0


_START = bytes((VERSION,))
_decoder = msgspec.msgpack.Decoder(MeterRecord)

__all__ = ["COUNTERS", "GAUGES", "LaneRow", "MeterRecord", "QueueRow", "RecordHead", "TopicRow", "Unreadable"]
__all__ += ["decode", "encode"]
__all__ += ["Block", "pack_block"]
__all__ += ["INTERVAL_S", "LANE_COLUMNS", "REFRESH", "TOPIC_COLUMNS", "VERSION", "WAITED", "numbers", "version_of"]
