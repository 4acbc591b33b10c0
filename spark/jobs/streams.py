"""Reads meter records as a stream, once or continuously; each batch has a permanent, unique name."""

from __future__ import annotations

import contextlib
import io
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException

from evenlane.spark.failures import explained
from evenlane.spark.session import hush
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
_NO_WORKER = "Python worker failed to connect back"
_TRIES = 6
_GRACE_S = 20
"""Time for the running batch at the end, in s. Java logs noisily if a batch is interrupted, and the batch would be
repeated anyway.
"""


def print_line(line: str) -> None:
    """Print a job's progress."""
    print(line, flush=True)  # noqa: T201


def silent(_line: str) -> None:
    """Print nothing: stdout has other content."""


def run(
    spark: SparkSession,
    source: Mapping[str, str],
    folder: Folder,
    write: Callable[[DataFrame, str], None],
    *,
    every: str | None,
    announce: Callable[[str], None],
) -> None:
    """Run a streaming job. `write` is called with rows of METER and the batch's name, and writes to `folder`, which
    also has the checkpoint. After a kill, an incomplete batch is repeated with the same rows and name. `every` is an
    interval such as `60 seconds`; without it, the job ends when all present records are read. `announce` is called for
    each batch. Raises ConfigError if the folder belongs to another environment or subscription, Busy if another process
    writes to it.
    """
    cluster = parse(source).settings.cluster

    def each(frame: DataFrame, number: int) -> None:
        query, began = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"), time.monotonic()
        folder.write(ENVIRONMENT, cluster)
        write(frame, f"{query}-{number:08}")
        announce(f"batch {number}: {time.monotonic() - began:.0f} s")

    with explained(), folder.lock():
        folder.refuse_other(cluster)
        rows = spark.readStream.format("evenlane").options(**source, what="meter").load()
        writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", folder.path_of(_CHECKPOINT))
        writer = writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)
        until_workers_start(lambda: _run(spark, writer))


def until_workers_start(run: Callable[[], None]) -> None:
    """Run a query, and again if Spark gave up on a Python worker: it allows 10 s to start one, which is too little on a
    busy machine. The query continues from its checkpoint.
    """
    for tries_left in reversed(range(_TRIES)):
        try:
            run()
        except StreamingQueryException as error:
            if _NO_WORKER not in str(error) or not tries_left:
                raise
        else:
            break


def _run(spark: SparkSession, writer: DataStreamWriter) -> None:
    query = writer.start()
    try:
        with _catch_signals() as ended:
            whole = _follow(query, ended)
        if ended.is_set():
            if not whole:
                print("evenlane: ended in the middle of a batch: the next run repeats it", file=sys.stderr)  # noqa: T201
                hush(spark)
            sys.exit(128 + signal.SIGTERM)
    finally:
        with contextlib.suppress(Exception):  # Java may have ended
            query.stop()


def _follow(query: StreamingQuery, ended: threading.Event) -> bool:
    """Wait for the query's end or the event; return whether no batch was interrupted."""
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
        return False  # Java has ended: it got the signal, too, as `timeout` and systemd signal a whole process group


@contextlib.contextmanager
def _catch_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM sets. An exception during a call to Java would leave the call's answer to the next
    call, which would then wait forever. After SIGTERM, stderr is discarded, so that PySpark's threads can't report that
    Java has ended.
    """
    ended = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield ended
        return

    def end(*_: object) -> None:
        sys.stderr = io.StringIO()
        ended.set()

    stderr, before = sys.stderr, signal.signal(signal.SIGTERM, end)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)
        sys.stderr = stderr
