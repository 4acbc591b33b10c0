"""What holds for all tests."""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession
    from xdist.remote import Producer


# Beside a busy neighbour any example takes long: that is no failure.
settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write what is so now into golden files and scripts")


def pytest_configure() -> None:
    """A shell starts what it runs in the background with SIGINT ignored, and so would be all that tests start, of which
    some are ended by it.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _logs_as_at_the_start() -> Iterator[None]:
    """A test that runs a command in this process sets its logs up, and a level above what the next test looks for."""
    yield
    structlog.reset_defaults()


_NEED_SPARK = ("tests/spark/", "tests/ledger/test_metering.py")
_LONG = ("spark", "ledger", "simulation")  # folders whose tests take seconds each


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long ones first: at the end one worker would run them while the others have nothing left. Spark takes a core
    in one worker; the others meanwhile run the tests on real servers, which wait for most of their time.
    """
    items.sort(key=lambda item: next((n for n, each in enumerate(_LONG) if each in item.path.parts), len(_LONG)))


def pytest_collection_finish() -> None:
    """Exempt the collected tests from garbage collection: scanning 6,000 of them took a fifth of the CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


class OneSession(LoadScopeScheduling):
    """What needs Spark is run by one of pytest-xdist's workers: so there is one session for the whole run."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith(_NEED_SPARK) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSession:
    return OneSession(config, log)


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether files of what is expected are to be rewritten: review the difference."""
    return bool(request.config.getoption("--update"))


@pytest.fixture(scope="session")
def nats_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsServer]:
    """One nats-server for all tests that share one; who kills it starts it again."""
    server = NatsServer(tmp_path_factory.mktemp("nats"))
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One etcd for all tests that leave it running."""
    server = EtcdServer(tmp_path_factory.mktemp("etcd"), fast=True)
    asyncio.run(server.start())
    yield server
    asyncio.run(server.stop())


# so little is sooner done than compiled
_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One for all tests of reports: it takes seconds to start."""
    with session("tests", master="local[2]", settings=_SMALL) as made:
        yield made
