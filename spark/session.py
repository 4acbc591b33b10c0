"""The Spark session of a report: on this machine unless a master is named, quiet, in UTC, ended whatever happens."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenlane.engine.errors import EvenlaneError
from evenlane.spark.failures import sentence
from evenlane.spark.installed import missing
from evenlane.spark.java import java_home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_TERMINATED = 128 + signal.SIGTERM
_LOG_SETUP = Path(__file__).with_name("log4j2.properties")

_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    # A table is sent to all tasks only if it is known to be small once it is worked out. By the size of its file, which
    # is all that is known before, one of ten times that was sent, and a driver of 1 GB ended.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10m",
    # For whoever asks for it with the data source's option `pushdown`.
    "spark.sql.python.filterPushdown.enabled": "true",
}
_STARTED_HERE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "16",
    # A plan of reports has many steps, and each takes at least a page: by default one is tens of MB.
    "spark.buffer.pageSize": "2m",
    # By default Spark records the line of code that makes each column. The reports have thousands of columns, and this
    # took a third of the planning time.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class NoSpark(EvenlaneError):
    """PySpark isn't installed, or Spark didn't start."""


@contextlib.contextmanager
def session(
    name: str, *, master: str | None = None, logs: str = "off", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session with the data source registered. One that is active already is used, and left as it is.

    `master` is for Spark that is started here; under spark-submit it is what that says. `logs` is the least level that
    Spark, if started here, writes to stderr. SIGTERM ends the block as SystemExit does, so that what it began is
    cleaned up. Raises NoSpark and NoJava.
    """
    if (why := missing()) is not None:
        raise NoSpark(why)
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only reports need it installed

    from evenlane.spark.source import register  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    with _sigterm_as_exit():
        spark = active or _started(SparkSession.builder.appName(name), master, logs, settings or {})
        try:
            register(spark)
            _unheard(spark)
            yield spark
        finally:
            if active is None:
                _stop(spark)


def _unheard(spark: SparkSession) -> None:
    """Where Java goes away first, as with a SIGTERM for a whole group, PySpark's thread of accumulators need not tell
    of it with a traceback.
    """
    server: Any = spark.sparkContext._accumulatorServer  # noqa: SLF001 - it has no setting
    if server is not None:
        server.handle_error = lambda *_: None


def hushed(spark: SparkSession) -> None:
    """What Java and PySpark say of work that is cut off in the middle, hundreds of lines, isn't said from now on: for a
    process that is about to end.
    """
    java: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to Java's stderr
    with contextlib.suppress(Exception):  # Java may be gone
        java.System.setErr(java.java.io.PrintStream(java.java.io.OutputStream.nullOutputStream()))
        spark.sparkContext.setLogLevel("OFF")
    sys.stderr = io.StringIO()


def _started(builder: SparkSession.Builder, master: str | None, logs: str, settings: Mapping[str, str]) -> SparkSession:
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    for key, value in _ALWAYS.items():
        builder.config(key, value)
    if submitted:
        return _get(_with(builder, settings))
    master = master or LOCAL
    builder.master(master)
    _with(builder, _STARTED_HERE | (_LOCAL if master.startswith("local") else {}))
    builder.config(
        "spark.driver.extraJavaOptions", f'-Devenlane.log={logs} "-Dlog4j2.configurationFile={_LOG_SETUP.as_uri()}"'
    )
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with java_home(os.environ) as home, _variable("JAVA_HOME", str(home)):
        return _get(_with(builder, settings))


def _with(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder.config(key, value)
    return builder


def _get(builder: SparkSession.Builder) -> SparkSession:
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise NoSpark(f"Spark didn't start: {error}; what Java said stands above") from error
    except Py4JError as error:
        raise NoSpark(f"Spark didn't start, as with a master that doesn't answer: {sentence(str(error))}") from error


def _stop(spark: SparkSession) -> None:
    """A second Ctrl-C, or a JVM that is gone already, must not hide how the block ended."""
    with contextlib.suppress(Exception):
        spark.sparkContext.cancelAllJobs()
    with contextlib.suppress(Exception):
        spark.stop()


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


@contextlib.contextmanager
def _sigterm_as_exit() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def exit_now(_number: int, _frame: FrameType | None) -> None:
        sys.exit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, exit_now)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
