"""Meter records as a stream that ends when all is read, or goes on; each batch has a name of its own for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession


def run(
    spark: SparkSession,
    source: Mapping[str, str],
    write: Callable[[DataFrame, str], None],
    *,
    checkpoint: str,
    every: str | None,
) -> None:
    """`write` gets rows of METER and the batch's name. After a kill the batch that wasn't done comes again, the same
    rows under the same name. `every` is a time such as `60 seconds`; without it what is there is read, then it ends.
    """

    def each(frame: DataFrame, number: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        write(frame, f"{query}-{number:08}")

    rows = spark.readStream.format("evenlane").options(**source, what="meter").load()
    writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    query = (writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
