"""Polars expressions shared by several modules of this room. Times are Unix time in µs, as integers."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

import polars as pl
import pyarrow as pa

from evenlane.spark.source.columns import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MICROS = 1_000_000
_Time = TypeVar("_Time", int, pl.Expr)


class Extent(NamedTuple):
    """The time that the records cover: from the start of what the first one covers to the last one's event time."""

    start: int
    end: int

    @property
    def length_s(self) -> float:
        return (self.end - self.start) / MICROS


def seconds(micros: pl.Expr) -> pl.Expr:
    """Convert µs to seconds, with fraction."""
    return micros / MICROS


def micros(seconds: pl.Expr) -> pl.Expr:
    """Convert seconds to whole µs."""
    return (seconds * MICROS).round().cast(pl.Int64)


def floor_to(time: _Time, length_s: int) -> _Time:
    """Return the start of the span of this length that contains `time`; spans are aligned to the Unix epoch."""
    return time // (length_s * MICROS) * (length_s * MICROS)


def ratio(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    """Divide; null where the whole is null or 0."""
    return pl.when(whole > 0).then(part / whole)


def total(names: list[str]) -> pl.Expr:
    """Add columns; null counts as 0."""
    return pl.sum_horizontal(names)


def from_arrow(table: pa.Table) -> pl.DataFrame:
    """Convert a table, with times to integers."""
    found = pl.from_arrow(table)
    assert isinstance(found, pl.DataFrame)
    return physical(found)


def physical(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.with_columns(pl.selectors.datetime().to_physical())


def to_arrow(rows: pl.DataFrame, schema: StructType) -> pa.Table:
    """Convert the schema's columns to its types."""
    target = arrow_schema(schema)
    return pa.table([rows[field.name].to_arrow().cast(field.type) for field in target], schema=target)
