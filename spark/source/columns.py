"""Arrow columns out of words of 8 bytes, as records have them (engine/schemas/columns.py), without a loop over rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

_WORD = 8


def arrow_schema(schema: StructType) -> pa.Schema:
    """Times are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


class Words:
    """Columns by name of many tables, one table after the other; what a table doesn't have is zero."""

    def __init__(self) -> None:
        self.rows = 0
        self._parts: dict[str, list[tuple[int, bytes | bytearray]]] = {}

    def begin(self, rows: int) -> None:
        """The next table has so many; `add` was called for its columns before."""
        self.rows += rows

    def add(self, name: str, words: bytes | bytearray) -> None:
        self._parts.setdefault(name, []).append((self.rows, words))

    def column(self, name: str) -> pa.Array:
        """As int64."""
        whole = bytearray(_WORD * self.rows)
        for start, words in self._parts.get(name, ()):
            whole[_WORD * start : _WORD * start + len(words)] = words
        return pa.Array.from_buffers(pa.int64(), self.rows, [None, pa.py_buffer(whole)])


def seconds(column: pa.Array, unit_s: float) -> pa.Array:
    return pc.multiply(pc.cast(column, pa.float64()), unit_s)


def known(column: pa.Array, offset: int, unit: float) -> pa.Array:
    """(x - offset) * unit; null where x is 0."""
    value = pc.multiply(pc.cast(pc.subtract(column, offset), pa.float64()), unit)
    return pc.if_else(pc.equal(column, 0), pa.scalar(None, pa.float64()), value)


def times(ns: pa.Array) -> pa.Array:
    """Of unix ns."""
    return pc.cast(pc.divide(ns, 1_000), pa.timestamp("us", tz="UTC"))


def batch(schema: pa.Schema, columns: dict[str, Any], rows: int) -> pa.RecordBatch:
    """What isn't given is null."""
    arrays: Sequence[pa.Array] = [
        pc.cast(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
