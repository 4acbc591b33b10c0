"""Spark session of a report: local unless a master is named, quiet, in UTC, always ended."""

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
from evenlane.spark.installed import find_missing
from evenlane.spark.java import java_home
from evenlane.spark.master import check_master, is_local

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

    from pyspark.sql import SparkSession

LOCAL = "local[*]"
_STOPPED = "Cannot call methods on a stopped SparkContext"  # Spark's only words for a master that refuses
_TERMINATED = 128 + signal.SIGTERM
_LOG_SETUP = Path(__file__).with_name("log4j2.properties")

_FILES = {
    # By default Spark writes times in a format of its own, without a time zone.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
_ALWAYS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "true",
    # A table is broadcast only if it is known to be small after it was computed. The size of its file, the only one
    # known before, isn't sufficient: a table ten times that size was broadcast, and ended a driver of 1 GB.
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "10m",
    **_FILES,
    # A task has one core; by default Polars starts a thread for each core of the machine.
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    # For queries that use the data source's option `pushdown`.
    "spark.sql.python.filterPushdown.enabled": "true",
}
_STARTED_HERE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "16",
    # A report has more compiled steps than the default of 100, with which each one in a session compiles all again.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # The plan of a report has many steps, each of which takes at least a page; a default page is tens of MB.
    "spark.buffer.pageSize": "2m",
    # By default Spark records the line of code that makes each column. The reports have thousands of columns, and this
    # took a third of the planning time.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.dataFrameQueryContext.enabled": "false",
    # Checks and descriptions of each plan, for Spark's developers and its web page.
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
}
_SMALL = {
    # One task each, without shuffles. Compiling code, or planning again after each step, takes longer than the work.
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.leafNodeDefaultParallelism": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    # The optimizer would compute tables in memory once for each step that uses them, and again for the step itself.
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation",
}
_MODERATE = {
    # Planning again after each step takes longer than most of the steps.
    "spark.sql.adaptive.enabled": "false",
}
_LOCAL = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class NoSpark(EvenlaneError):
    """PySpark isn't installed, or Spark didn't start."""


@contextlib.contextmanager
def session(
    name: str,
    *,
    master: str | None = None,
    logs: str = "off",
    settings: Mapping[str, str] | None = None,
    small: bool = False,
) -> Iterator[SparkSession]:
    """Yield a session with the data source registered. An active session is used, and left unchanged.

    `master` applies to a Spark started here; under spark-submit, that decides. `logs` is the lowest level that a Spark
    started here logs to stderr. `small`: the session
    starts quickly, but its Java doesn't compile thoroughly, and the data source isn't registered, which starts a Python
    process. SIGTERM ends the block like SystemExit, so that clean-up runs. Raises NoSpark and
    NoJava.
    """
    if (why := find_missing()) is not None:
        raise NoSpark(why)
    from pyspark.sql import SparkSession  # noqa: PLC0415 - only reports need it installed

    from evenlane.spark.source import register  # noqa: PLC0415

    active = SparkSession.getActiveSession()
    with _sigterm_as_exit():
        spark = active or _start(
            SparkSession.builder.appName(name), master, _java_options(logs, small=small), settings or {}
        )
        try:
            if not small:
                register(spark)
            _silence(spark)
            yield spark
        finally:
            if active is None:
                _stop(spark)


def _silence(spark: SparkSession) -> None:
    """Keep PySpark's accumulator thread from printing a traceback when Java ends first, as after a SIGTERM to all."""
    server: Any = spark.sparkContext._accumulatorServer  # noqa: SLF001 - it has no setting
    if server is not None:
        server.handle_error = lambda *_: None


@contextlib.contextmanager
def readable_files(spark: SparkSession) -> Iterator[None]:
    """Let Spark write times that other programs can read, inside `with`, also in a session that others started."""
    with _settings(spark, _FILES):
        yield


@contextlib.contextmanager
def small_input(spark: SparkSession) -> Iterator[None]:
    """Set the session up for inputs of at most some 100,000 rows, inside `with`."""
    with _settings(spark, _SMALL):
        yield


@contextlib.contextmanager
def moderate_input(spark: SparkSession) -> Iterator[None]:
    """Set the session up for inputs of at most some 100,000 rows of grains, inside `with`."""
    tasks = str(max(2, spark.sparkContext.defaultParallelism))
    with _settings(spark, {**_MODERATE, "spark.sql.shuffle.partitions": tasks}):
        yield


@contextlib.contextmanager
def _settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        with contextlib.suppress(Exception):  # Java may have ended
            for name, previous in before.items():
                spark.conf.unset(name) if previous is None else spark.conf.set(name, previous)


def hush(spark: SparkSession) -> None:
    """Silence messages of Java and PySpark about interrupted work, for a process that is about to end."""
    java: Any = spark._jvm  # noqa: SLF001 - PySpark has no other way to Java's stderr
    with contextlib.suppress(Exception):  # Java may have ended
        java.System.setErr(java.java.io.PrintStream(java.java.io.OutputStream.nullOutputStream()))
        spark.sparkContext.setLogLevel("OFF")
    sys.stderr = io.StringIO()


def _start(
    builder: SparkSession.Builder, master: str | None, java_options: str, settings: Mapping[str, str]
) -> SparkSession:
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    for key, value in _ALWAYS.items():
        builder.config(key, value)
    if submitted:
        return _get(_configure(builder, settings))
    master = master or LOCAL
    check_master(master)
    builder.master(master)
    _configure(builder, _STARTED_HERE | (_LOCAL if is_local(master) else {}))
    builder.config("spark.driver.extraJavaOptions", java_options)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    with java_home(os.environ) as home, _variable("JAVA_HOME", str(home)):
        return _get(_configure(builder, settings))


def _java_options(logs: str, *, small: bool) -> str:
    # without the last one, Java would have room for 48 MB of code, which a large report fills: Java then gives up
    quick = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m" if small else ""
    return f'-Devenlane.log={logs} "-Dlog4j2.configurationFile={_LOG_SETUP.as_uri()}"{quick}'


def _configure(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession.Builder:
    for key, value in settings.items():
        builder.config(key, value)
    return builder


def _get(builder: SparkSession.Builder) -> SparkSession:
    from py4j.protocol import Py4JError  # noqa: PLC0415
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise NoSpark(f"Spark didn't start: {error}; Java's output is above") from error
    except Py4JError as error:
        why = sentence(str(error))
        if _STOPPED in why:
            why = "the master took no application: look at its log, or at the pods of driver and executors"
        raise NoSpark(f"Spark didn't start: {why}") from error


def _stop(spark: SparkSession) -> None:
    """Stop the session. A second Ctrl-C, or a JVM that has ended, must not hide how the block ended."""
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
