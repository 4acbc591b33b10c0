"""Meter records as a stream that ends when all is read, or goes on; each batch has a name of its own for ever."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from evenlane.spark.failures import explained
from evenlane.spark.session import hushed
from evenlane.spark.source.archive import ENVIRONMENT
from evenlane.spark.source.options import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from evenlane.spark.jobs.folders import Folder

_CHECKPOINT = "_checkpoint"
_LOOKS_EVERY_S = 1
_GRACE_S = 20
"""For a batch that runs at the end: Java makes a noise of one that is cut off, and it would only come again."""


def printed(line: str) -> None:
    """A job's sign of life."""
    print(line, flush=True)  # noqa: T201


def unsaid(_line: str) -> None:
    """Where stdout is for something else."""


def run(
    spark: SparkSession,
    source: Mapping[str, str],
    folder: Folder,
    write: Callable[[DataFrame, str], None],
    *,
    every: str | None,
    say: Callable[[str], None],
) -> None:
    """`write` gets rows of METER and the batch's name, and writes to `folder`, where the checkpoint is, too. After a
    kill the batch that wasn't done comes again, the same rows under the same name. `every` is a time such as
    `60 seconds`; without it what is there is read, then it ends. `say` is told of each batch. Raises ConfigError where
    the folder is another environment's, Busy where another process writes to it.
    """
    env = parse(source).settings.env

    def each(frame: DataFrame, number: int) -> None:
        query, began = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"), time.monotonic()
        folder.write(ENVIRONMENT, env)
        write(frame, f"{query}-{number:08}")
        say(f"batch {number}: {time.monotonic() - began:.0f} s")

    with explained(), folder.alone():
        folder.refuse_other(env)
        rows = spark.readStream.format("evenlane").options(**source, what="meter").load()
        writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", folder.at(_CHECKPOINT))
        _run(spark, writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True))


def _run(spark: SparkSession, writer: DataStreamWriter) -> None:
    query = writer.start()
    try:
        with _told_to_end() as ended:
            whole = _followed(query, ended)
        if ended.is_set():
            if not whole:
                print("evenlane: ended in the middle of a batch: the next run repeats it", file=sys.stderr)  # noqa: T201
                hushed(spark)
            sys.exit(128 + signal.SIGTERM)
    finally:
        with contextlib.suppress(Exception):  # Java may be gone
            query.stop()


def _followed(query: StreamingQuery, ended: threading.Event) -> bool:
    """Until it ends or is told to; whether no batch was cut off."""
    try:
        while not ended.is_set() and not query.awaitTermination(_LOOKS_EVERY_S):
            pass
        looks = _GRACE_S // _LOOKS_EVERY_S
        while looks and query.status["isTriggerActive"] and not query.awaitTermination(_LOOKS_EVERY_S):
            looks -= 1
        return not query.status["isTriggerActive"]
    except Exception:
        if not ended.is_set():
            raise
        return False  # Java is gone: it was told, too, as by `timeout` and systemd, which tell all of a group


@contextlib.contextmanager
def _told_to_end() -> Iterator[threading.Event]:
    """Set by SIGTERM. An exception in the midst of a call to Java would leave its answer to the next call, which would
    wait behind it for ever. From then on nothing is heard of what PySpark's threads say of a Java that goes away.
    """
    ended = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return

    def end(*_: object) -> None:
        sys.stderr = io.StringIO()
        ended.set()

    heard, before = sys.stderr, signal.signal(signal.SIGTERM, end)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.stderr = heard
