"""Meter records as a stream that ends when all is read, or goes on; each batch has a name of its own for ever."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from spark.session import hushed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession

_LOOKS_EVERY_S = 1
_GRACE_S = 20
"""For a batch that runs at the end: Java makes a noise of one that is cut off, and it would only come again."""


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
        query, began = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"), time.monotonic()
        write(frame, f"{query}-{number:08}")
        print(f"batch {number}: {time.monotonic() - began:.0f} s", flush=True)  # noqa: T201 - a job's sign of life

    rows = spark.readStream.format("evenlane").options(**source, what="meter").load()
    writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    query = (writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)).start()
    try:
        with _told_to_end() as ended:
            while not ended.is_set() and not query.awaitTermination(_LOOKS_EVERY_S):
                pass
            looks = _GRACE_S // _LOOKS_EVERY_S
            while looks and query.status["isTriggerActive"] and not query.awaitTermination(_LOOKS_EVERY_S):
                looks -= 1
        if ended.is_set():
            if query.status["isTriggerActive"]:
                print("evenlane: ended in the middle of a batch: the next run repeats it", file=sys.stderr)  # noqa: T201
                hushed(spark)
            sys.exit(128 + signal.SIGTERM)
    finally:
        with contextlib.suppress(Exception):  # Java may be gone, as where SIGTERM is for the whole group
            query.stop()


@contextlib.contextmanager
def _told_to_end() -> Iterator[threading.Event]:
    """Set by SIGTERM. An exception in the midst of a call to Java would leave its answer to the next call, which would
    wait behind it for ever.
    """
    ended = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return
    before = signal.signal(signal.SIGTERM, lambda *_: ended.set())
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)
