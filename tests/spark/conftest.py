"""One Spark session for all tests of reports: it takes seconds to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spark.session import session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# so little is sooner done than compiled
_SMALL = {
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with session("tests", master="local[2]", settings=_SMALL) as made:
        yield made
