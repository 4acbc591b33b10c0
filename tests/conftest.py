"""What holds for all tests."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
import structlog
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from spark.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession
    from xdist.remote import Producer


# Beside a busy neighbour any example takes long: that is no failure.
settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")


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
_ON_SERVERS = "ledger"  # the folder of the tests that wait, for servers and leases, for most of their time
_SPREAD = 0.9  # of the run, over which they are spread


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that need Spark first, as one worker runs all of them. Those on real servers are spread over the others,
    which need the processor, and none of them is among the last: the other workers would have nothing left meanwhile.
    """
    spark, rest = _parted(items, lambda item: item.nodeid.startswith(_NEED_SPARK))
    waiting, busy = _parted(rest, lambda item: _ON_SERVERS in item.path.parts)
    at = {item: _SPREAD * number / len(waiting) for number, item in enumerate(waiting)}
    at |= {item: number / len(busy) for number, item in enumerate(busy)}
    items[:] = spark + sorted(rest, key=at.__getitem__)


def _parted(
    items: list[pytest.Item], first: Callable[[pytest.Item], bool]
) -> tuple[list[pytest.Item], list[pytest.Item]]:
    return [item for item in items if first(item)], [item for item in items if not first(item)]


class OneSession(LoadScopeScheduling):
    """What needs Spark is run by one of pytest-xdist's workers: so there is one session for the whole run."""

    def _split_scope(self, nodeid: str) -> str:
        return "spark" if nodeid.startswith(_NEED_SPARK) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> OneSession:
    return OneSession(config, log)


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
