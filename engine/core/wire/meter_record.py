"""What a node publishes to `METER_<env>` each interval: of each queue that changed, what waits, and counters.

A record is a byte that says its version, one that says how it is compressed (z: zlib, x: LZMA, which makes a large
one a fifth smaller), then msgpack of three tables: lanes (a partition under an epoch), topics, and queues, which name
a lane and a topic by their place. Tables are made of columns (engine/core/wire/varint_columns.py);
one that isn't there is all zeros, and one that a reader doesn't know is passed over: so columns may be added without a
new version.

Counters begin at 0 with the epoch and never fall, so a record that is lost or comes twice changes no total. A record
tells every queue that changed since the last one that the store has acknowledged (`after`), and others now and then.
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
"""From one record of a node to its next, unless it is set otherwise."""
REFRESH = 30
"""Each queue is told at least once in so many records, changed or not."""

LANE_COLUMNS = ("partition", "epoch", "since", "closed")
"""`since` is when the epoch's counters began, unix ns; `closed` 1 if the node has handed the partition over: what these
rows say is the last word, but for handlers that run on. Lanes that no queue names come last: they say whose the
partition is now, so that what a killed owner told to wait there is known to be gone.
"""
TOPIC_COLUMNS = ("qps", "may_use", "weight", "reserve", "concurrency", "fairness")
"""In thousandths, plus 1000; 0 is "not known", or not set. `may_use` is the node's part of `qps` in messages/s, loans
included; `fairness` is the share of handling time that the tenant got over the one it was due on this node.
"""
COUNTERS = ("arrived", "handled", "retried", "dead", "expired", "dropped", "attempts", "dwelt", "ran")
"""Cumulative for a queue and epoch. `arrived` are messages that came in under this epoch: put, due, or found at the
take-over; `retried` attempts that failed and will be tried again, `dead` and `expired` how messages ended otherwise,
`dropped` on purpose; `attempts` are handlers begun, `dwelt` for how long their messages had waited, `ran` for how long
they ran, both in ms.
"""
GAUGES = ("backlog", "oldest", "in_flight", "longest")
"""`backlog` waits now; `oldest` is for how long the oldest has, in units of 10 ms plus 1 (0: not known); `longest` ms
is the longest wait that ended since the last record.
"""
WAITED = "waited."
"""Before a reason (engine/telemetry/wait_reasons.py) it names a counter: tenths of a second that messages waited for
it, times their number.
"""
_PLACES = ("lane", "topic", "group", "band")
_MOST_BYTES = 64 << 20  # of a record when it is unpacked
_MOST_ROWS = 4_000_000
_SMALL = 8 << 10  # bytes: below it LZMA takes longer to set up than zlib to do it
_LEVEL = 9


class Unreadable(ValueError):
    """It is no record that this release can read; the text says why. `newer` if a later release may have written it."""

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
    """See TOPIC_COLUMNS; None: not known, or not set."""

    project: str
    qps: float | None = None
    may_use: float | None = None
    weight: float | None = None
    reserve: float | None = None
    concurrency: float | None = None
    fairness: float | None = None


class QueueRow(NamedTuple):
    """`lane` and `topic` are places in their tables. Counters and gauges in the units of the columns; `waited` by
    reason; `waits` are (bucket, messages) of those buckets (engine/core/stats/wait_histogram.py) that changed,
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
    """Rows of queues and of their topics, packed once and written in many records. `lanes` and `projects` are what the
    rows name; `queues` and `buckets` are numbers of rows. A column of zeros is left out.
    """

    lanes: tuple[LaneRow, ...] = ()
    projects: tuple[str, ...] = ()
    topic_columns: Mapping[str, bytes] = {}
    queues: int = 0
    queue_columns: Mapping[str, bytes] = {}
    buckets: int = 0
    bucket_columns: Mapping[str, bytes] = {}

    def with_fairness(self, ratios: Mapping[str, float]) -> Block:
        """The same block with this ratio of each project."""
        if ratios.keys().isdisjoint(self.projects):
            return self
        fairness = pack([_thousandths(ratios.get(project)) for project in self.projects])
        return self._replace(topic_columns={**self.topic_columns, "fairness": fairness})

    def with_topics(self, topics: Sequence[TopicRow]) -> Block:
        """The same block with these rows, one for each of its projects."""
        return self._replace(topic_columns=_topic_columns(topics))


class Head(NamedTuple):
    """Of a record. `run` is when the node began to count, unix ns, `number` counts its records from 1, `after` is the
    last before this one that the store has acknowledged, 0 if none. `at` is the store's clock, unix ns; `span` for how
    long (ns) this record speaks; `slots` how many handlers may run.
    """

    node: str
    run: int
    number: int
    after: int
    at: int
    span: int
    slots: int
    priorities: tuple[str, ...]


class Record(msgspec.Struct, omit_defaults=True, kw_only=True):
    """As it is written; see Head. Columns by name."""

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
        """One of LANE_COLUMNS, as words (engine/core/wire/varint_columns.py); so the others below."""
        return unpack(self.lane_columns.get(column, b"\0"), self.lanes)

    def topic(self, column: str) -> bytearray:
        return unpack(self.topic_columns.get(column, b"\0"), len(self.projects))

    def queue(self, column: str) -> bytearray:
        """`lane`, `topic`, `group`, `band`, one of COUNTERS or GAUGES, `waited.<reason>`, or `waits`: how many of the
        buckets, in their order, are this queue's.
        """
        return unpack(self.queue_columns.get(column, b"\0"), self.queues)

    def bucket(self, column: str) -> bytearray:
        """`bucket` or `count`."""
        return unpack(self.bucket_columns.get(column, b"\0"), self.buckets)


def encode(
    head: Head,
    lanes: Sequence[LaneRow],
    topics: Sequence[TopicRow],
    queues: Sequence[QueueRow],
    ready: Block = Block(),  # noqa: B008 - immutable
) -> bytes:
    """A record. It is smallest where neighbouring queues are alike: sorted by project, group and band. The rows of
    `ready` come first: `lanes` begin with its lanes, `topics` are those beyond its projects, and queues count both.
    """
    rest = pack_block(lanes, topics, queues)
    record = Record(
        **head._asdict() | {"priorities": list(head.priorities)},
        lanes=len(lanes),
        lane_columns=_columns(LANE_COLUMNS, list(zip(*lanes, strict=True))),
        projects=[*ready.projects, *rest.projects],
        topic_columns=_joined(ready.topic_columns, len(ready.projects), rest.topic_columns, len(rest.projects)),
        queues=ready.queues + rest.queues,
        queue_columns=_joined(ready.queue_columns, ready.queues, rest.queue_columns, rest.queues),
        buckets=ready.buckets + rest.buckets,
        bucket_columns=_joined(ready.bucket_columns, ready.buckets, rest.bucket_columns, rest.buckets),
    )
    plain = msgspec.msgpack.encode(record)
    if len(plain) < _SMALL:
        return _START + b"z" + zlib.compress(plain, _LEVEL)
    return _START + b"x" + lzma.compress(plain, lzma.FORMAT_XZ, lzma.CHECK_CRC32)


def pack_block(lanes: Sequence[LaneRow], topics: Sequence[TopicRow], queues: Sequence[QueueRow]) -> Block:
    """The rows as a record has them."""
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
    """What it says of itself, whether it can be read or not; None if it is empty."""
    return body[0] if body else None


def decode(body: bytes) -> Record:
    """Raises Unreadable."""
    if not body or body[0] != VERSION:
        raise Unreadable(f"version {body[0] if body else 'none'} isn't known", newer=bool(body) and body[0] > VERSION)
    try:
        record = _decoder.decode(_unpacked(body[1:2], body[2:]))
    except (zlib.error, lzma.LZMAError, *UNREADABLE) as error:
        raise Unreadable(str(error)) from error
    if not all(0 <= rows <= _MOST_ROWS for rows in (record.queues, record.lanes, record.buckets)):
        raise Unreadable("a table has an impossible number of rows")
    return record


def _unpacked(how: bytes, packed: bytes) -> bytes:
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


def _joined(first: Mapping[str, bytes], count: int, second: Mapping[str, bytes], more: int) -> dict[str, bytes]:
    """The columns of two tables, one behind the other."""
    if not count or not more:
        return {**first, **second}
    return {name: join(first.get(name, b"\0"), count, second.get(name, b"\0"), more) for name in {**first, **second}}


def _columns(names: Sequence[str], values: Sequence[Sequence[int]]) -> dict[str, bytes]:
    """Those that aren't all zeros."""
    packed = {name: pack(column) for name, column in zip(names, values, strict=False)}
    return {name: column for name, column in packed.items() if column != b"\0"}


def _thousandths(value: object) -> int:
    return round(value * 1000) + 1000 if isinstance(value, (int, float)) else 0


_START = bytes((VERSION,))
_decoder = msgspec.msgpack.Decoder(Record)

__all__ = ["COUNTERS", "GAUGES", "Head", "LaneRow", "QueueRow", "Record", "TopicRow", "Unreadable", "decode", "encode"]
__all__ += ["Block", "pack_block"]
__all__ += ["INTERVAL_S", "LANE_COLUMNS", "REFRESH", "TOPIC_COLUMNS", "VERSION", "WAITED", "numbers", "version_of"]
