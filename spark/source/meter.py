"""Rows of METER out of the messages of `METER_<env>`: many records at once, column by column."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from engine.schemas.columns import numbers
from engine.schemas.meter import COUNTERS, LANE_COLUMNS, TOPIC_COLUMNS, WAITED, decode, version_of
from engine.schemas.reasons import REASONS
from spark.schemas import METER
from spark.source.columns import Words, arrow_schema, batch, known, seconds, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from engine.ports import Stored
    from engine.schemas.meter import Record

ROWS = 65_536
"""About so many in one batch."""

_SCHEMA = arrow_schema(METER)
_MS, _TENTH = 0.001, 0.1
_COUNTED = [name for name in COUNTERS if name not in ("dwelt", "ran")]


def batches(pages: Iterable[Iterable[Stored]]) -> Iterator[pa.RecordBatch]:
    """A message that is no record, or of a newer version, gives one row that says so."""
    gathered = _Gathered()
    for page in pages:
        for stored in page:
            gathered.take(stored)
            if gathered.rows >= ROWS:
                yield from gathered.batches()
                gathered = _Gathered()
    yield from gathered.batches()


class _Gathered:
    """Some records. Lanes, topics and priorities of all of them stand in one table each, and rows point there."""

    def __init__(self) -> None:
        self._queues, self._lanes, self._topics, self._buckets = Words(), Words(), Words(), Words()
        self._projects: list[str] = []
        self._priorities: list[str] = []
        self._records: dict[str, list[Any]] = {name: [] for name in _RECORD}
        self._bare: list[dict[str, Any]] = []  # rows without a queue
        # of each row: its record, and where its record's lanes, topics and priorities begin
        self._record_of, self._lane_base, self._topic_base, self._band_base = (array("q") for _ in range(4))

    @property
    def rows(self) -> int:
        return self._queues.rows + len(self._bare)

    def take(self, stored: Stored) -> None:
        try:
            record = decode(stored.body)
            tables = _unpacked(record)
        except ValueError as error:  # Unreadable is one
            self._bare.append(_unreadable(stored, str(error)))
            return
        told = _told(stored, record)
        if record.queues:
            self._add(record, tables, told)
        else:
            self._bare.append(told)

    def _add(self, record: Record, tables: _Tables, told: dict[str, Any]) -> None:
        count = record.queues
        for base, start in (
            (self._record_of, len(self._records["sequence"])), (self._lane_base, self._lanes.rows),
            (self._topic_base, len(self._projects)), (self._band_base, len(self._priorities)),
        ):  # fmt: skip
            base.extend(array("q", (start,)) * count)
        for words, rows, table in zip(
            (self._lanes, self._topics, self._queues, self._buckets),
            (record.lanes, len(record.projects), count, record.buckets), tables, strict=True,
        ):  # fmt: skip
            for name, column in table.items():
                words.add(name, column)
            words.begin(rows)
        self._projects += record.projects
        self._priorities += record.priorities
        for name, value in told.items():
            self._records[name].append(value)

    def batches(self) -> Iterator[pa.RecordBatch]:
        if self._queues.rows:
            yield batch(_SCHEMA, self._columns(), self._queues.rows)
        if self._bare:
            yield pa.RecordBatch.from_pylist(self._bare, schema=_SCHEMA)

    def _columns(self) -> dict[str, pa.Array]:
        queue = self._queues.column
        lane = pc.add(queue("lane"), _array(self._lane_base))
        topic = pc.add(queue("topic"), _array(self._topic_base))
        band = pc.add(queue("band"), _array(self._band_base))
        record_of = _array(self._record_of)
        backlog = queue("backlog")
        lanes = {name: pc.take(self._lanes.column(name), lane) for name in LANE_COLUMNS}
        return {
            **{
                name: pc.take(pa.array(values, _SCHEMA.field(name).type), record_of)
                for name, values in self._records.items()
            },
            **lanes, "since": times(lanes["since"]), "closed": pc.not_equal(lanes["closed"], 0),
            **{name: known(pc.take(self._topics.column(name), topic), 1_000, 0.001) for name in TOPIC_COLUMNS},
            "project": pc.take(pa.array(self._projects, pa.string()), topic),
            "priority": pc.take(pa.array(self._priorities, pa.string()), band),
            "group": queue("group"), "backlog": backlog, "in_flight": queue("in_flight"),
            "oldest_s": known(queue("oldest"), 1, 0.01), "longest_s": seconds(queue("longest"), _MS),
            **{name: queue(name) for name in _COUNTED},
            "dwelt_s": seconds(queue("dwelt"), _MS), "ran_s": seconds(queue("ran"), _MS),
            **{f"waited_{reason}_s": seconds(queue(WAITED + reason), _TENTH) for reason in REASONS},
            "waits": self._waits(queue("waits")),
        }  # fmt: skip

    def _waits(self, counts: pa.Array) -> pa.Array:
        ends = pc.cast(pc.cumulative_sum(counts), pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        bucket = pc.cast(self._buckets.column("bucket"), pa.int32())
        fields = pa.StructArray.from_arrays([bucket, self._buckets.column("count")], names=["bucket", "count"])
        return pa.ListArray.from_arrays(offsets, fields)


_Tables = tuple[dict[str, bytearray], dict[str, bytearray], dict[str, bytearray], dict[str, bytearray]]
_RECORD = ("sequence", "stored", "version", "node", "run", "number", "after", "at", "span_s", "slots")


def _unpacked(record: Record) -> _Tables:
    """All columns, each looked at: what points outside its table is no record. Raises ValueError."""
    queues = {name: record.queue(name) for name in record.queue_columns if name in _QUEUE}
    for name, rows in (("lane", record.lanes), ("topic", len(record.projects)), ("band", len(record.priorities))):
        highest = max(numbers(queues[name]), default=-1) if name in queues else 0
        if record.queues and highest >= rows:
            raise ValueError(f"a queue names a {name} that isn't there")
    if sum(numbers(queues["waits"]) if "waits" in queues else ()) != record.buckets:
        raise ValueError("the buckets of waits aren't those of the queues")
    return (
        {name: record.lane(name) for name in record.lane_columns if name in LANE_COLUMNS},
        {name: record.topic(name) for name in record.topic_columns if name in TOPIC_COLUMNS},
        queues,
        {name: record.bucket(name) for name in record.bucket_columns if name in ("bucket", "count")},
    )


_QUEUE = {
    "lane", "topic", "group", "band", "waits", "backlog", "oldest", "in_flight", "longest", *COUNTERS,
    *(WAITED + reason for reason in REASONS),
}  # fmt: skip


def _told(stored: Stored, record: Record) -> dict[str, Any]:
    return {
        "sequence": stored.sequence, "stored": stored.at // 1_000, "version": version_of(stored.body),
        "node": record.node, "run": record.run, "number": record.number, "after": record.after,
        "at": record.at // 1_000, "span_s": record.span / 1e9, "slots": record.slots,
    }  # fmt: skip


def _unreadable(stored: Stored, problem: str) -> dict[str, Any]:
    return {
        "sequence": stored.sequence, "stored": stored.at // 1_000, "version": version_of(stored.body),
        "node": ".".join(stored.subject.split(".")[2:]),
        "problem": problem,
    }  # fmt: skip


def _array(values: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values.tobytes())])
