"""Keeps the tables of a report, which cuts off their plans: otherwise Spark would process these at each later step."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from evenlane.spark.jobs.folders import Folder
from evenlane.spark.out import place
from evenlane.spark.reports.grains import once

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from evenlane.spark.reports.grains import Grains


class TableStore:
    """Keeps tables in memory if they are small (`few`), otherwise as Parquet in a local folder, `scratch`. In memory
    they take no job, no file and no compiled code of Spark's.
    """

    def __init__(self, spark: SparkSession, scratch: Path, *, few: bool) -> None:
        self._spark, self._scratch, self._few = spark, scratch, few

    def merge(self, grains: Grains) -> Grains:
        """Merge the records of all tasks, and keep them. Other rows stay: the step that uses them merges."""
        return grains._replace(records=self.keep(once(grains.records), "merged/records"))

    def keep(self, frame: DataFrame, name: str, folder: Path | None = None) -> DataFrame:
        """Keep a table, and write it as Parquet to `folder`/`name` unless that is None."""
        if not self._few:
            return Folder(self._spark, place.url(folder or self._scratch)).keep(frame, name)
        kept = frame.localCheckpoint()
        if folder is not None:
            (folder / name).mkdir()
            pq.write_table(kept.toArrow(), folder / name / "part-00000.parquet")
        return kept
