"""Data source `evenlane`: meter records, lanes and dead letters as rows (docs/reference/data-source.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(session: SparkSession) -> None:
    """Register the format `evenlane` in this session."""
    from evenlane.spark.source.datasource import EvenlaneSource  # noqa: PLC0415 - needs PySpark, which not every importer has

    session.dataSource.register(EvenlaneSource)
