"""Stores the tenants' rows, from which this process makes the document and the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pyarrow.parquet as pq

from evenlane.spark.out import place
from evenlane.spark.session import readable_files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame


def store_table(frame: DataFrame, folder: Path, *, few: bool) -> pl.LazyFrame:
    """Write the rows as Parquet to a local folder, and return them as they are there. If they are `few`, this process
    writes them, which takes less time than Spark's writer.
    """
    if few:
        found = frame.toArrow()
        folder.mkdir(parents=True)
        pq.write_table(found, folder / "part-00000.parquet")
    else:
        with readable_files(frame.sparkSession):
            frame.hint("rebalance").write.mode("overwrite").parquet(place.url(folder))
    return pl.scan_parquet(folder / "*.parquet")
