"""Archives meter records as Parquet, by day and hour, so that history outlives the stream.

    python -m evenlane.spark.jobs.archive --archive DIR               archive new records, then end
    python -m evenlane.spark.jobs.archive --archive DIR --every 1m    continue until SIGTERM
    spark-submit --master ... archive.py --archive DIR                the same elsewhere (examples/spark-operator)

Each run continues where the last one ended (`DIR/_checkpoint`). A batch is first written next to the hours, then its
files are moved to their hours. The next run after a kill completes a written batch instead of reading it again, so no
record is archived twice, and none is lost although the stream may no longer have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the usual name

from evenlane.spark.jobs import streams
from evenlane.spark.jobs.arguments import Arguments
from evenlane.spark.jobs.arguments import run as run_program
from evenlane.spark.jobs.folders import Folder
from evenlane.spark.reports.grains import SKEW_S, delay_s
from evenlane.spark.session import session
from evenlane.spark.source.archive import PROGRESS, name_of, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

_DAY_S, _HOUR_S = 86_400, 3_600
_STAGING = "_staging"


def run(
    spark: SparkSession,
    source: Mapping[str, str],
    archive: str,
    every: str | None = None,
    announce: Callable[[str], None] = streams.silent,
) -> None:
    """Archive records. `source` are options of the data source. Without `every`, returns when all present records are
    archived. `announce` is called for each batch. Raises Failed; Busy if another process archives there; ConfigError if
    the archive belongs to another environment.
    """
    folder = Folder(spark, archive)
    streams.run(
        spark, source, folder, lambda frame, batch: write_batch(frame, folder, batch), every=every, announce=announce
    )


def write_batch(meter: DataFrame, folder: Folder, batch: str) -> None:
    """Write rows of METER to the hours of their event time, in files named after the batch. May be repeated."""
    staging, staged, laid = f"{_STAGING}/{batch}", progress(batch, whole=False), progress(batch, whole=True)
    done = folder.read(PROGRESS)
    if done not in (staged, laid):
        _stage(meter, folder.path_of(staging))
        folder.write(PROGRESS, staged)
    if done != laid:
        for name in folder.names(f"{staging}/day=*/hour=*/*.parquet"):
            day, hour, part = name.split("/")[-3:]
            place = f"{day}/{hour}/{name_of(batch, part)}"
            folder.delete(place)  # an object store's rename copies, and an interrupted one may have left a copy
            folder.rename(name, place)
        folder.write(PROGRESS, laid)
    folder.delete(staging)


def _stage(meter: DataFrame, path: str) -> None:
    # late records, and those with a wrong clock, are filed by arrival time
    event = F.when(F.abs(delay_s()) > SKEW_S, F.col("stored")).otherwise(F.coalesce("at", "stored"))
    since_1970 = F.unix_seconds(event)  # in UTC, whatever the session's time zone
    day = F.date_from_unix_date(F.floor(since_1970 / _DAY_S).cast("int")).cast("string")
    hour = F.lpad(F.floor(since_1970 % _DAY_S / _HOUR_S).cast("string"), 2, "0")
    hours = meter.withColumns({"day": day, "hour": hour})
    # few files per hour, and no task that gets a whole day
    hours.hint("rebalance", "day", "hour").write.mode("overwrite").partitionBy("day", "hour").parquet(path)


def main(arguments: Sequence[str]) -> None:
    command_line = Arguments(__doc__)
    command_line.archive(required=True)
    command_line.every()
    given, source = command_line.parse(arguments)
    with session("evenlane archive") as spark:
        run(spark, source, given.archive, given.every, streams.print_line)


if __name__ == "__main__":
    run_program(main)
