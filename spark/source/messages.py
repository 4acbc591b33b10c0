"""Builds batches of rows of LANES and DEAD, whose columns are the fields of the input."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from evenlane.spark.source.columns import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.types import StructType

_ROWS = 16_384
_BYTES = 32 << 20  # of bodies per batch


def batches(rows: Iterable[tuple[Any, ...]], schema: StructType) -> Iterator[pa.RecordBatch]:
    """Yield batches. Times in unix ns become timestamps."""
    arrow = arrow_schema(schema)
    left = iter(rows)
    while some := list(_some(left)):
        columns = [_column(values, field) for values, field in zip(zip(*some, strict=True), arrow, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=arrow)


def _some(left: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the next rows, fewer if bodies are large."""
    room = _BYTES
    for row in islice(left, _ROWS):
        yield row
        room -= len(row[-1] or b"")
        if room <= 0:
            return


def _column(values: tuple[Any, ...], field: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        return pa.array([None if value is None else value // 1_000 for value in values], field.type)
    return pa.array(values, field.type)
