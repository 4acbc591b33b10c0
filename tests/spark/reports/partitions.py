"""The number of partitions of a plan."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_SETTINGS = ("spark.sql.shuffle.partitions", "spark.sql.leafNodeDefaultParallelism")


@contextmanager
def two_partitions(spark: SparkSession) -> Iterator[None]:
    """Within the block, plans read and shuffle two partitions, not one as in other tests."""
    before = [spark.conf.get(name, None) for name in _SETTINGS]
    for name in _SETTINGS:
        spark.conf.set(name, "2")
    try:
        yield
    finally:
        for name, value in zip(_SETTINGS, before, strict=True):
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
