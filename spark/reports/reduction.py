"""Reduces rows of METER in Arrow, where they are read; Spark merges what the tasks found (spark/reports/grains.py).

Most rows only repeat cumulative counters: of each queue and grain, one row is left. Arrow takes a fraction of the time
that Spark takes for the same rows, and needs no code to be compiled first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from evenlane.spark.reports.grains import EPOCH, FILLED, SKEW_S
from evenlane.spark.reports.schemas import COUNTED, CUMULATIVE, LEVELS, RECORDS, TOPIC, WAIT_LEVELS
from evenlane.spark.source.columns import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql.types import StructType

    from evenlane.spark.reports.spans import Span

_MICROS = 1_000_000
_TIME = pa.timestamp("us", tz="UTC")
_NULL_TOO = pc.ScalarAggregateOptions(skip_nulls=False)
_KEY = ("grain", *EPOCH)
_ONE_RECORD = ("sequence", "stored")
"""Key of a record: a recreated stream has the same sequences at other times."""


class ReducedRows(NamedTuple):
    """Tables of LEVELS, WAIT_LEVELS and RECORDS; each key occurs once."""

    levels: pa.Table
    waits: pa.Table
    records: pa.Table


def reduce_rows(rows: pa.Table, span: Span, behind: Collection[tuple[str, int]] = ()) -> ReducedRows:
    """Reduce rows of METER to the span's grains, and waits to its windows. `behind` are the runs (node, run) with a
    slow clock.
    """
    timed = _add_times(rows, span.grain_s, behind)
    reported = _fill(timed.filter(pc.and_(pc.is_valid(timed["partition"]), pc.is_null(timed["problem"]))))
    return ReducedRows(_levels(reported), _waits(reported, span.window_s), _records(timed))


def _add_times(rows: pa.Table, grain_s: int, behind: Collection[tuple[str, int]]) -> pa.Table:
    """Add the event time and its grain."""
    stored, at = (pc.cast(rows[name], pa.int64()) for name in ("stored", "at"))
    wrong = pc.fill_null(pc.less(pc.subtract(stored, at), -SKEW_S * _MICROS), fill_value=False)
    for node, run in behind:
        of_run = pc.and_(pc.equal(rows["node"], node), pc.equal(rows["run"], run))
        wrong = pc.or_(wrong, pc.fill_null(of_run, fill_value=False))
    event = pc.if_else(wrong, stored, pc.coalesce(at, stored))
    return rows.append_column("event", pc.cast(event, _TIME)).append_column("grain", _floor(event, grain_s))


def _floor(time: pa.ChunkedArray, length_s: int) -> pa.ChunkedArray:
    length = length_s * _MICROS
    return pc.cast(pc.multiply(pc.divide(pc.cast(time, pa.int64()), length), length), _TIME)


def _fill(reported: pa.Table) -> pa.Table:
    """Fill in fields that older records lack."""
    for name, value in FILLED.items():
        place = reported.schema.get_field_index(name)
        filled = pc.fill_null(reported[name], pa.scalar(value, reported.schema.field(name).type))
        reported = reported.set_column(place, name, filled)
    return reported


def _levels(reported: pa.Table) -> pa.Table:
    """Aggregate as `merge_grains` does: rows in the order of their numbers, so that the first and last ones count."""
    waiting = pc.add(reported["backlog"], pc.cast(reported["in_flight"], pa.int64()))
    rows = reported.drop_columns(["waits"]).append_column("waiting", waiting).sort_by("number")
    found: dict[str, tuple[str, str, pc.FunctionOptions | None]] = {
        "since": ("since", "min", None),
        "closed": ("closed", "max", None),
        "first_number": ("number", "min", None),
        "number": ("number", "max", None),
        "last_at": ("event", "last", _NULL_TOO),
        **{name: (name, "last", None) for name in TOPIC},
        **{name: (name, "last", _NULL_TOO) for name in ("backlog", "oldest_s", "in_flight")},
        "longest_s": ("longest_s", "max", None),
        **{name: (name, "max", None) for name in CUMULATIVE},
        "first_at": ("event", "first", _NULL_TOO),
        "first_span_s": ("span_s", "first", _NULL_TOO),
        "first_waiting": ("waiting", "first", _NULL_TOO),
        **{f"first_{name}": (name, "min", None) for name in COUNTED},
    }
    return _aggregate(rows, _KEY, found, LEVELS)


def _waits(reported: pa.Table, grain_s: int) -> pa.Table:
    waits = reported["waits"].combine_chunks()
    longer = _floor(reported["grain"], grain_s)
    reported = reported.set_column(reported.schema.get_field_index("grain"), "grain", longer)
    rows = reported.select([*_KEY, "since", "number"]).take(pc.list_parent_indices(waits))
    each = pc.list_flatten(waits)
    for name in ("bucket", "count"):
        rows = rows.append_column(name, pc.struct_field(each, name))
    found: dict[str, tuple[str, str, pc.FunctionOptions | None]] = {
        "since": ("since", "min", None),
        "first_number": ("number", "min", None),
        "first_count": ("count", "min", None),
        "count": ("count", "max", None),
    }
    return _aggregate(rows, (*_KEY, "bucket"), found, WAIT_LEVELS)


def _records(timed: pa.Table) -> pa.Table:
    """Keep one row of each message: all rows of a record have the same values in these columns."""
    others = [name for name in RECORDS.names if name not in _ONE_RECORD]
    return _aggregate(timed, _ONE_RECORD, {name: (name, "first", None) for name in others}, RECORDS)


def _aggregate(
    rows: pa.Table, key: Sequence[str], found: dict[str, tuple[str, str, pc.FunctionOptions | None]], schema: StructType
) -> pa.Table:
    """Group rows. `found` has column, aggregate function and its options by the name of the result."""
    grouped = pa.TableGroupBy(rows, list(key), use_threads=False).aggregate(list(found.values()))
    columns = {
        **{name: grouped[name] for name in key},
        **{name: grouped[f"{column}_{function}"] for name, (column, function, _) in found.items()},
    }
    target = arrow_schema(schema)
    return pa.table([pc.cast(columns[field.name], field.type) for field in target], schema=target)
