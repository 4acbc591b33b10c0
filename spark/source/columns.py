"""Builds Arrow columns from 8-byte words, as in records (engine/core/wire/varint_columns.py), without row loops."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql.types import StructType

_WORD = 8  # bytes
_FIRST = 1_024  # initial capacity, in rows


def arrow_schema(schema: StructType) -> pa.Schema:
    """Convert a schema; times are in UTC."""
    return to_arrow_schema(schema, timezone="UTC")


class ColumnTables:
    """Tables of many records, appended to each other, in columns of 8 bytes; missing values are zero. They are filled
    immediately: keeping the records' many small objects would cost as much as reading them.

    Invariant: a column's words are empty until it is first added, and then have room for `_room` rows.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.rows = 0
        self._room = _FIRST
        self._words = {name: bytearray() for name in names}

    def add(self, columns: dict[str, bytes], rows: int) -> int:
        """Append columns; return their first row. `check` has validated them; unknown names are skipped."""
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
            if rows == 1:  # tables of one row are frequent: the bytes of their only number are already contiguous
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
        """Return the columns by name, as int64."""
        zeros = bytes(_WORD * self.rows)
        return {name: _array(words or zeros, self.rows) for name, words in self._words.items()}


def _array(words: bytes | bytearray, rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(words)])


def repeat(ends: Sequence[int]) -> pa.Array:
    """Return 0 up to the first end, then 1 up to the second, and so on."""
    runs = pa.RunEndEncodedArray.from_arrays(pa.array(ends, pa.int64()), pa.array(range(len(ends)), pa.int64()))
    return pc.run_end_decode(runs)


def seconds(column: pa.Array, unit_s: float) -> pa.Array:
    return pc.multiply(pc.cast(column, pa.float64()), unit_s)


def keep_known(column: pa.Array, offset: int, unit: float) -> pa.Array:
    """Return (x - offset) * unit; null where x is 0."""
    value = pc.multiply(pc.cast(pc.subtract(column, offset), pa.float64()), unit)
    return pc.if_else(pc.equal(column, 0), pa.scalar(None, pa.float64()), value)


def times(ns: pa.Array) -> pa.Array:
    """Convert unix ns to timestamps."""
    return pc.cast(pc.divide(ns, 1_000), pa.timestamp("us", tz="UTC"))


def batch(schema: pa.Schema, columns: dict[str, Any], rows: int) -> pa.RecordBatch:
    """Build a batch; columns that aren't given are null."""
    arrays: Sequence[pa.Array] = [
        pc.cast(columns[field.name], field.type) if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
