"""Fixtures and settings of all tests."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.spark.session import session
from tests.support.kubernetes.api_server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from xdist.remote import Producer


# On a busy machine any example may take long, which is no failure.
settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="rewrite golden files and text scripts")


# For small data, thorough compilation takes longer than the work. Hadoop runs `chmod` for each folder and file.
_JAVA = (
    "-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=256m", "-XX:+UseSerialGC", "-Xms800m", "-Xmn500m",
    "-XX:MetaspaceSize=300m", "-Djdk.lang.Process.launchMechanism=VFORK",
)  # fmt: skip


def pytest_configure() -> None:
    """Restore the default of SIGINT. A shell ignores it in background processes, and so would the processes of tests,
    some of which are ended by it.

    Let Java start and compile fast instead of run fast, and rarely collect garbage: see _JAVA. Spark and its Python
    processes give up on each other after 15 s, which a busy machine may take.
    """
    os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", "120")
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(_JAVA))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _default_logging() -> Iterator[None]:
    """Restore the defaults: a command in this process configures logging, maybe with too high a level for others."""
    yield
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()  # `run` binds its node's id


_NEED_SPARK = ("tests/spark/", "tests/ledger/test_metering.py", "tests/ledger/test_surfaces_report.py")
_BY_FILE = ("tests/unit/", "tests/integration/")
_NEED_BROWSER = "tests/integration/http/page/"
_SPARK_TIMEOUT_S = 1_200
_WAITING = "tests/ledger/"  # tests that spend most of their seconds waiting for processes
_WAITING_END = 0.8  # all of them begin in this part of the run


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with Spark, which takes one worker most of the run. Spread tests that wait among those that compute, so
    that no core is idle; but not to the end, where one worker would run a long test while the others are idle.
    """
    spark = [item for item in items if item.nodeid.startswith(_NEED_SPARK)]
    for item in spark:  # the first of them prepares the records of all
        item.add_marker(pytest.mark.timeout(_SPARK_TIMEOUT_S))
    waiting = [item for item in items if item.nodeid.startswith(_WAITING) and item not in spark]
    others = [item for item in items if not item.nodeid.startswith((*_NEED_SPARK, _WAITING))]
    places = {
        item: place / len(group) * end
        for group, end in ((waiting, _WAITING_END), (others, 1.0))
        for place, item in enumerate(group)
    }
    items.sort(key=lambda item: places.get(item, -1.0))


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection: scanning 6,000 of them took a fifth of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


class WorkUnits(LoadScopeScheduling):
    """Runs all tests with Spark in one worker of pytest-xdist, so that they share a session, and those of the page in
    one, with one browser. Integration tests of a file share its servers. Unit tests are handed out by file, because the
    scheduler looks at all units of work after each test.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(_NEED_SPARK):
            return "spark"
        if nodeid.startswith(_NEED_BROWSER):
            return "browser"
        return nodeid.partition("::")[0] if nodeid.startswith(_BY_FILE) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> WorkUnits:
    config.option.loadscopereorder = False  # long tests first, not large files
    return WorkUnits(config, log)


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether to rewrite expected files; their difference must be reviewed."""
    return bool(request.config.getoption("--update"))


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """A nats-server for all tests that share one. A test that kills it must restart it."""
    server = NatsServer(tmp_path_factory.mktemp("nats"), fast=True)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """An etcd for all tests that share one. A test that kills it must restart it."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), fast=True)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server of Kubernetes for all tests that share one."""
    server = ApiServer(tmp_path_factory.mktemp("kubernetes"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


# For small data, compilation takes longer than the work, and a task longer than its input. With one partition, Spark
# plans no shuffles; the report of tests/spark/reports has them.
_SMALL = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
    "spark.sql.ui.explainMode": "simple",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session for all tests of reports, as it takes seconds to start."""
    with session("tests", master="local[1]", settings=_SMALL) as spark_session:
        yield spark_session
