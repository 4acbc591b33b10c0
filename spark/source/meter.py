"""Rows of METER out of the messages of `METER_<env>`: many records at once, column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.schemas.columns import numbers, unpack
from engine.schemas.meter import COUNTERS, LANE_COLUMNS, TOPIC_COLUMNS, WAITED, decode, version_of
from engine.schemas.reasons import REASONS
from spark.schemas import METER
from spark.source.columns import arrow_schema, batch, known, seconds, times

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence

    from engine.ports import Stored
    from engine.schemas.meter import Record

ROWS = 65_536
"""About so many in one batch."""

_SCHEMA = arrow_schema(METER)
_BUCKETS = 16 * 65_536
_WORD = 8  # bytes
_FIRST = 1_024  # rows for which there is room at first
_MOST, _MOST_SHORT = 2**63 - 1, 2**31 - 1
_MS, _TENTH = 0.001, 0.1
_COUNTED = [name for name in COUNTERS if name not in ("dwelt", "ran")]


def batches(pages: Iterable[Iterable[Stored]]) -> Iterator[pa.RecordBatch]:
    """A message that is no record, or of a newer version, gives one row that says so."""
    gathered = _Gathered()
    for page in pages:
        for stored in page:
            gathered.take(stored)
            if gathered.full:
                yield from gathered.batches()
                gathered = _Gathered()
    yield from gathered.batches()


class _Tables:
    """Tables of many records, one after the other, in columns of 8 bytes; what isn't there is zero. They are filled at
    once: to keep what records are made of, small objects without number, costs as much as to read it.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.rows = 0
        self._room = _FIRST
        self._words = {name: bytearray() for name in names}

    def add(self, columns: dict[str, bytes], rows: int) -> int:
        """Where it begins. The columns were looked at by `_check`; one without a name is passed over."""
        first, self.rows = self.rows, self.rows + rows
        if self.rows > self._room:
            self._grow()
        start, stop = _WORD * first, _WORD * self.rows
        for name, column in columns.items():
            words = self._words.get(name)
            if words is None:
                continue
            if not words:
                words.extend(bytes(_WORD * self._room))
            if rows == 1:  # tables of one row are many: their only number's bytes stand together as they are
                words[start : start + len(column) - 1] = column[1:]
                continue
            for plane in range(column[0]):
                words[start + plane : stop : _WORD] = column[1 + plane * rows : 1 + (plane + 1) * rows]
        return first

    def _grow(self) -> None:
        self._room = max(2 * self._room, self.rows)
        for words in self._words.values():
            if words:
                words.extend(bytes(_WORD * self._room - len(words)))

    def columns(self) -> dict[str, pa.Array]:
        """By name, as int64."""
        zeros = bytes(_WORD * self.rows)
        return {name: _array(words or zeros, self.rows) for name, words in self._words.items()}


class _Gathered:
    """Some records. Lanes, topics and priorities of all of them stand in one table each, and rows point there."""

    def __init__(self) -> None:
        self._queues, self._buckets = _Tables(_QUEUE), _Tables(_BUCKET)
        self._lanes, self._topics = _Tables(LANE_COLUMNS), _Tables(TOPIC_COLUMNS)
        self._projects: list[str] = []
        self._priorities: list[str] = []
        self._records: list[tuple[Any, ...]] = []  # as _RECORD
        self._before: dict[str, tuple[Record, tuple[int, int, int]]] = {}  # of each node
        self._bare: list[dict[str, Any]] = []  # rows without a queue

    @property
    def full(self) -> bool:
        return self._queues.rows + len(self._bare) >= ROWS or self._buckets.rows >= _BUCKETS

    def take(self, stored: Stored) -> None:
        try:
            record = decode(stored.body)
            before, starts = self._before.get(record.node, (None, (0, 0, 0)))
            alike = before is not None and _alike(before, record)
            _check(record, alike=alike)
        except ValueError as error:  # Unreadable is one
            self._bare.append(_unreadable(stored, str(error)))
            return
        if not record.queues:
            self._bare.append(dict(zip(_RECORD, _told(stored, record), strict=False)))
            return
        if not alike:
            starts = self._shared(record)
            self._before[record.node] = record, starts
        self._queues.add(record.queue_columns, record.queues)
        self._buckets.add(record.bucket_columns, record.buckets)
        self._records.append((*_told(stored, record), *starts, self._queues.rows))

    def _shared(self, record: Record) -> tuple[int, int, int]:
        """Where its lanes, topics and priorities begin, from which on the node's next records may need no others."""
        starts = (
            self._lanes.add(record.lane_columns, record.lanes),
            self._topics.add(record.topic_columns, len(record.projects)),
            len(self._priorities),
        )
        self._projects += record.projects
        self._priorities += record.priorities
        return starts

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._queues.rows:
            yield batch(_SCHEMA, self._columns(), self._queues.rows)
        if self._bare:
            yield pa.RecordBatch.from_pylist(self._bare, schema=_SCHEMA)

    def _columns(self) -> dict[str, pa.Array]:
        queue, lanes, topics = self._queues.columns(), self._lanes.columns(), self._topics.columns()
        told = dict(zip(_RECORD, zip(*self._records, strict=True), strict=True))
        record_of = _repeated(told["end"])
        lane, topic, band = (
            pc.add(queue[name], pc.take(pa.array(told[f"{name}_start"], pa.int64()), record_of))
            for name in ("lane", "topic", "band")
        )
        lanes = {name: pc.take(column, lane) for name, column in lanes.items()}
        return {
            **{
                name: pc.take(pa.array(told[name], _SCHEMA.field(name).type), record_of)
                for name in _RECORD if name in _SCHEMA.names
            },
            **lanes, "since": times(lanes["since"]), "closed": pc.not_equal(lanes["closed"], 0),
            **{name: known(pc.take(column, topic), 1_000, 0.001) for name, column in topics.items()},
            "project": pc.take(pa.array(self._projects, pa.string()), topic),
            "priority": pc.take(pa.array(self._priorities, pa.string()), band),
            "group": queue["group"], "backlog": queue["backlog"], "in_flight": queue["in_flight"],
            "oldest_s": known(queue["oldest"], 1, 0.01), "longest_s": seconds(queue["longest"], _MS),
            **{name: queue[name] for name in _COUNTED},
            "dwelt_s": seconds(queue["dwelt"], _MS), "ran_s": seconds(queue["ran"], _MS),
            **{f"waited_{reason}_s": seconds(queue[WAITED + reason], _TENTH) for reason in REASONS},
            "waits": self._waits(queue["waits"]),
        }  # fmt: skip

    def _waits(self, counts: pa.Array) -> pa.Array:
        ends = pc.cast(pc.cumulative_sum(counts), pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        told = self._buckets.columns()
        fields = pa.StructArray.from_arrays([pc.cast(told["bucket"], pa.int32()), told["count"]], names=list(_BUCKET))
        return pa.ListArray.from_arrays(offsets, fields)


_RECORD = (
    "sequence", "stored", "version", "node", "run", "number", "after", "at", "span_s", "slots",
    # where its lanes, topics and priorities begin, and its rows end
    "lane_start", "topic_start", "band_start", "end",
)  # fmt: skip
_BUCKET = ("bucket", "count")
_QUEUE = frozenset({
    "lane", "topic", "group", "band", "waits", "backlog", "oldest", "in_flight", "longest", *COUNTERS,
    *(WAITED + reason for reason in REASONS),
})  # fmt: skip
_SHORT = ("group", "partition", "bucket")  # columns of 32 bits


def _alike(one: Record, other: Record) -> bool:
    """Whether rows of one may point to the other's lanes, topics and priorities."""
    return (
        one.lanes == other.lanes
        and one.projects == other.projects
        and one.priorities == other.priorities
        and one.lane_columns == other.lane_columns
        and one.topic_columns == other.topic_columns
    )


def _check(record: Record, *, alike: bool) -> None:
    """All columns, each looked at: what points outside its table is no record. Raises ValueError. With `alike` lanes
    and topics were looked at before.
    """
    if not alike:
        _columns(record.lane_columns, record.lanes, LANE_COLUMNS)
        _columns(record.topic_columns, len(record.projects), TOPIC_COLUMNS)
    queues, rows = record.queue_columns, record.queues
    _columns(queues, rows, _QUEUE)
    _columns(record.bucket_columns, record.buckets, _BUCKET)
    for name, there in (("lane", record.lanes), ("topic", len(record.projects)), ("band", len(record.priorities))):
        if rows and max(_values(queues.get(name, b"\0"), rows), default=0) >= there:
            raise ValueError(f"a queue names a {name} that isn't there")
    if sum(_values(queues.get("waits", b"\0"), rows)) != record.buckets:
        raise ValueError("the buckets of waits aren't those of the queues")
    if max(record.run, record.number, record.after, record.at) > _MOST or record.slots > _MOST_SHORT:
        raise ValueError("a number is impossibly large")
    if min(record.run, record.number, record.after, record.at, record.slots) < 0:
        raise ValueError("a number is negative")


def _columns(columns: dict[str, bytes], rows: int, names: Container[str]) -> None:
    for name, column in columns.items():
        if name not in names:
            continue
        width = column[0] if column else _WORD + 1
        if width > _WORD or len(column) != 1 + width * rows:
            raise ValueError(f"a column of {rows} numbers has {len(column)} bytes")
        if width >= 4 and name in _SHORT and max(_values(column, rows)) > _MOST_SHORT:
            raise ValueError(f"a {name} is impossibly large")


def _values(column: bytes, rows: int) -> Sequence[int]:
    """A column's numbers; zeros may be left out."""
    return column[1:] if column[0] <= 1 else numbers(unpack(column, rows))


def _told(stored: Stored, record: Record) -> tuple[Any, ...]:
    """As _RECORD begins."""
    return (
        stored.sequence, stored.at // 1_000, version_of(stored.body), record.node, record.run, record.number,
        record.after, record.at // 1_000, record.span / 1e9, record.slots,
    )  # fmt: skip


def _unreadable(stored: Stored, problem: str) -> dict[str, Any]:
    return {
        "sequence": stored.sequence, "stored": stored.at // 1_000, "version": version_of(stored.body),
        "node": ".".join(stored.subject.split(".")[2:]),
        "problem": problem,
    }  # fmt: skip


def _array(words: bytes | bytearray, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(words)])


def _repeated(ends: Sequence[int]) -> pa.Array:
    """0 up to the first end, then 1 up to the second, and so on."""
    runs = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int64()), pa.array(range(len(ends)), pa.int64()))
    return pc.run_end_decode(runs)
