"""Stores the tenants' rows, from which this process makes the document and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

from evenlane.spark.out import place

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame


def store_table(frame: DataFrame, folder: Path, *, few: bool) -> pl.LazyFrame:
    """Write the rows as Parquet to a local folder, and return them as they are there. If they are `few`, this
    process writes them: it takes less time than a job of Spark's.
    """
    if few:
        found = frame.toArrow()
        folder.mkdir(parents=True)
        pq.write_table(found, folder / "part-00000.parquet")
    else:
        frame.hint("rebalance").write.mode("overwrite").parquet(place.url(folder))
    return pl.scan_parquet(folder / "*.parquet")
