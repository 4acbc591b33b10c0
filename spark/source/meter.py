"""Builds rows of METER from the messages of `METER_<env>`: many records at once, column by column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from evenlane.engine.base.names import subscription_of
from evenlane.engine.core.records.meter_record import (
    COUNTERS,
    LANE_COLUMNS,
    TOPIC_COLUMNS,
    WAITED,
    decode,
    numbers,
    version_of,
)
from evenlane.engine.core.wire.reason_codes import REASONS
from evenlane.spark.schemas import METER
from evenlane.spark.source.checks import BUCKET, QUEUE, bare_lanes, check, is_alike
from evenlane.spark.source.columns import ColumnTables, arrow_schema, batch, keep_known, repeat, seconds, times

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from evenlane.engine.core.ports import Stored
from evenlane.engine.core.records.meter_record import MeterRecord

ROWS = 65_536
"""Approximate number of rows per batch."""

_SCHEMA = arrow_schema(METER)
_BUCKETS = 16 * 65_536
_MS, _TENTH = 0.001, 0.1
_COUNTED = [name for name in COUNTERS if name not in ("dwelt", "ran")]


def batches(pages: Iterable[Iterable[Stored]]) -> Iterator[pa.RecordBatch]:
    """Yield batches. A message that is no record, or of a newer version, gives one row with its problem."""
    gathered = _Gathered()
    for page in pages:
        for stored in page:
            gathered.add_record(stored)
            if gathered.is_full:
                yield from gathered.batches()
                gathered = _Gathered()
    yield from gathered.batches()


class _Gathered:
    """Several records. Lanes, topics and priorities of all of them are in one table each, to which rows refer.

    Invariant: `_before` has, by node, a record whose lanes, topics and priorities the next ones may share, and their
    first rows.
    """

    def __init__(self) -> None:
        self._queues, self._buckets = ColumnTables(QUEUE), ColumnTables(BUCKET)
        self._lanes, self._topics = ColumnTables(LANE_COLUMNS), ColumnTables(TOPIC_COLUMNS)
        self._projects: list[str] = []
        self._priorities: list[str] = []
        self._records: list[tuple[Any, ...]] = []  # in the order of _RECORD
        self._before: dict[str, tuple[MeterRecord, tuple[int, int, int]]] = {}  # by node
        self._bare: list[dict[str, Any]] = []  # rows without a queue

    @property
    def is_full(self) -> bool:
        return self._queues.rows + len(self._bare) >= ROWS or self._buckets.rows >= _BUCKETS

    def add_record(self, stored: Stored) -> None:
        try:
            record = decode(stored.body)
            before, starts = self._before.get(record.node, (None, (0, 0, 0)))
            same = before is not None and is_alike(before, record)
            check(record, shared=same)
        except ValueError as error:  # includes Unreadable
            self._bare.append(_unreadable(stored, str(error)))
            return
        self._bare += _bare(stored, record)
        if not record.queues:
            return
        if not same:
            starts = self._shared(record)
            self._before[record.node] = record, starts
        self._queues.add(record.queue_columns, record.queues)
        self._buckets.add(record.bucket_columns, record.buckets)
        self._records.append((*_values(stored, record), *starts, self._queues.rows))

    def _shared(self, record: MeterRecord) -> tuple[int, int, int]:
        """Add the record's lanes, topics and priorities; return their first rows, which the node's next
        records may reuse.
        """
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
        values = dict(zip(_RECORD, zip(*self._records, strict=True), strict=True))
        record_of = repeat(values["end"])
        lane, topic, band = (
            pc.add(queue[name], pc.take(pa.array(values[f"{name}_start"], pa.int64()), record_of))
            for name in ("lane", "topic", "band")
        )
        lanes = {name: pc.take(column, lane) for name, column in lanes.items()}
        return {
            **{
                name: pc.take(pa.array(values[name], _SCHEMA.field(name).type), record_of)
                for name in _RECORD if name in _SCHEMA.names
            },
            **lanes, "since": times(lanes["since"]), "closed": pc.not_equal(lanes["closed"], 0),
            **{name: keep_known(pc.take(column, topic), 1_000, 0.001) for name, column in topics.items()},
            "project": pc.take(pa.array(self._projects, pa.string()), topic),
            "priority": pc.take(pa.array(self._priorities, pa.string()), band),
            "group": queue["group"], "backlog": queue["backlog"], "in_flight": queue["in_flight"],
            "oldest_s": keep_known(queue["oldest"], 1, 0.01), "longest_s": seconds(queue["longest"], _MS),
            **{name: queue[name] for name in _COUNTED},
            "dwelt_s": seconds(queue["dwelt"], _MS), "ran_s": seconds(queue["ran"], _MS),
            **{f"waited_{reason}_s": seconds(queue[WAITED + reason], _TENTH) for reason in REASONS},
            "waits": self._waits(queue["waits"]),
        }  # fmt: skip

    def _waits(self, counts: pa.Array) -> pa.Array:
        ends = pc.cast(pc.cumulative_sum(counts), pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        values = self._buckets.columns()
        fields = pa.StructArray.from_arrays(
            [pc.cast(values["bucket"], pa.int32()), values["count"]], names=list(BUCKET)
        )
        return pa.ListArray.from_arrays(offsets, fields)


_RECORD = (
    "sequence", "stored", "version", "subscription", "node", "run", "number", "after", "at", "span_s", "slots",
    # first rows of its lanes, topics and priorities, and the end of its rows
    "lane_start", "topic_start", "band_start", "end",
)  # fmt: skip


def _values(stored: Stored, record: MeterRecord) -> tuple[Any, ...]:
    """Return the first fields of _RECORD."""
    return (
        stored.sequence, stored.at // 1_000, version_of(stored.body), _subscription(stored), record.node,
        record.run, record.number, record.after, record.at // 1_000, record.span / 1e9, record.slots,
    )  # fmt: skip


def _bare(stored: Stored, record: MeterRecord) -> list[dict[str, Any]]:
    """Return a row per lane without a queue; one row if the record has neither lanes nor queues."""
    places = bare_lanes(record)
    if not places:
        return [] if record.queues else [dict(zip(_RECORD, _values(stored, record), strict=False))]
    values = dict(zip(_RECORD, _values(stored, record), strict=False))
    columns = {name: numbers(record.lane(name)) for name in LANE_COLUMNS}
    return [
        {
            **values, "partition": columns["partition"][place], "epoch": columns["epoch"][place],
            "since": columns["since"][place] // 1_000, "closed": bool(columns["closed"][place]),
        }
        for place in places
    ]  # fmt: skip


def _subscription(stored: Stored) -> str:
    """Return the subscription that the node works for, by the subject of its record; empty: the unnamed one."""
    return subscription_of(stored.subject.split(".")[1])


def _unreadable(stored: Stored, problem: str) -> dict[str, Any]:
    return {
        "sequence": stored.sequence, "stored": stored.at // 1_000, "version": version_of(stored.body),
        "subscription": _subscription(stored), "node": ".".join(stored.subject.split(".")[2:]),
        "problem": problem,
    }  # fmt: skip
