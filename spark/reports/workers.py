"""Runs Polars functions in Spark's Python workers, on rows that Spark stores and distributes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from evenlane.spark.reports.expressions import from_arrow, to_arrow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import polars as pl
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    Compute = Callable[[pl.DataFrame], pl.DataFrame]


def map_rows(frame: DataFrame, compute: Compute, schema: StructType) -> DataFrame:
    """Compute on some rows at a time. Select the columns that `compute` needs: all are passed."""
    return frame.mapInArrow(partial(_map_rows, compute=compute, schema=schema), schema)


def map_groups(frame: DataFrame, key: str, compute: Compute, schema: StructType) -> DataFrame:
    """Compute on all rows of some keys together; rows of a key aren't divided."""
    divided = frame.repartition(count_partitions(frame), key)
    return divided.mapInArrow(partial(_map_groups, compute=compute, schema=schema), schema)


def count_partitions(frame: DataFrame) -> int:
    """Return a fixed number: Spark combines partitions by their compressed size, of which Polars needs a multiple."""
    return int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def collect(frame: DataFrame) -> pl.DataFrame:
    """Return all rows, with times in unix µs."""
    return from_arrow(frame.toArrow())


def _map_rows(batches: Iterable[pa.RecordBatch], compute: Compute, schema: StructType) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from to_arrow(compute(from_arrow(pa.Table.from_batches([batch]))), schema).to_batches()


def _map_groups(batches: Iterable[pa.RecordBatch], compute: Compute, schema: StructType) -> Iterator[pa.RecordBatch]:
    if held := list(batches):
        yield from to_arrow(compute(from_arrow(pa.Table.from_batches(held))), schema).to_batches()
