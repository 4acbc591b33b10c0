"""Columns shared by several modules of this room."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the usual name

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

_MICROS = 1_000_000.0


def seconds(time: Column) -> Column:
    """Convert a time to Unix seconds, with fraction."""
    return F.unix_micros(time) / _MICROS


def floor_to(time: Column, length_s: int) -> Column:
    """Return the start of the span of this length that contains `time`; spans are aligned to the Unix epoch."""
    return F.timestamp_seconds(F.floor(seconds(time) / length_s) * length_s)


def each_as(form: str, names: Iterable[str]) -> list[Column]:
    """Return the SQL expression `form` for each of these columns, under its name. `{}` in it is the column. An
    expression in SQL takes one call to Java; a chain of functions takes several.
    """
    return [F.expr(f"{form.format(name)} as {name}") for name in names]


def total(names: Iterable[str]) -> Column:
    return F.expr(" + ".join(names))


def ratio(part: Column, whole: Column) -> Column:
    """Divide; null where the whole is null or 0."""
    return F.when(whole > 0, part / whole)


def shape(frame: DataFrame, schema: StructType) -> DataFrame:
    """Select exactly the schema's columns, with its types and order."""
    return frame.selectExpr(
        *(f"cast(`{each.name}` as {each.dataType.simpleString()}) as `{each.name}`" for each in schema)
    )
