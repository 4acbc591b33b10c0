"""Lays meter records down as Parquet, by day and hour, so that history outlives the stream.

    python -m spark.jobs.archive --archive DIR                 what is new, then it ends
    python -m spark.jobs.archive --archive DIR --every 1m      goes on until SIGTERM
    spark-submit --master ... archive.py --archive DIR         the same elsewhere (examples/spark-operator)

A run goes on where the last one ended (`DIR/_checkpoint`). Files carry the number of their batch in their names: what
a run that was killed wrote of one is replaced when the next run repeats it, so nothing is there twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from spark.failures import explained
from spark.jobs import streams
from spark.jobs.arguments import Arguments
from spark.jobs.arguments import run as run_program
from spark.jobs.folders import Folder
from spark.reports.grains import is_skewed
from spark.session import session

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

_DAY_S, _HOUR_S = 86_400, 3_600
_STAGING = "_staging"
_CHECKPOINT = "_checkpoint"


def run(spark: SparkSession, source: Mapping[str, str], archive: str, every: str | None = None) -> None:
    """`source` are options of the data source. Without `every` it ends when all is laid down that was there. Raises
    Failed, and Busy where another process does this.
    """
    with explained():
        folder = Folder(spark, archive)
        with folder.alone():
            streams.run(
                spark,
                source,
                lambda frame, batch: lay_down(frame, folder, batch),
                checkpoint=folder.at(_CHECKPOINT),
                every=every,
            )


def lay_down(meter: DataFrame, folder: Folder, batch: str) -> None:
    """Rows of METER into the hours of their event time, in files that bear the batch's name."""
    staging = f"{_STAGING}/{batch}"
    event = F.when(is_skewed(), F.col("stored")).otherwise(F.coalesce("at", "stored"))
    since_1970 = F.unix_seconds(event)  # in UTC, whatever the session's time zone
    day = F.date_from_unix_date(F.floor(since_1970 / _DAY_S).cast("int")).cast("string")
    hour = F.lpad(F.floor(since_1970 % _DAY_S / _HOUR_S).cast("string"), 2, "0")
    hours = meter.withColumns({"day": day, "hour": hour})
    # (few files an hour, and no task that gets a whole day)
    hours.hint("rebalance", "day", "hour").write.mode("overwrite").partitionBy("day", "hour").parquet(
        folder.at(staging)
    )
    for former in folder.names(f"day=*/hour=*/{batch}-*.parquet"):
        folder.delete(former)
    for number, name in enumerate(folder.names(f"{staging}/day=*/hour=*/*.parquet")):
        place = "/".join(name.split("/")[-3:-1])
        folder.rename(name, f"{place}/{batch}-{number:05}.parquet")
    folder.delete(staging)


def main(arguments: Sequence[str]) -> None:
    told = Arguments(__doc__)
    told.archive(required=True)
    told.every()
    given, source = told.parse(arguments)
    with session("evenlane archive") as spark:
        run(spark, source, given.archive, given.every)


if __name__ == "__main__":
    run_program(main)
