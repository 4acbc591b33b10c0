"""Code that Spark compiles for a report."""

import pytest

from evenlane.spark.reports.grains import Grains
from evenlane.spark.reports.reduction import REDUCED, reduce_rows
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.tenants import tenants
from evenlane.spark.reports.timeline import find_timeline
from evenlane.spark.schemas import DEAD, METER
from evenlane.spark.source.columns import arrow_schema
from tests.spark.reports import cases

_MODE = "spark.sql.codegen.factoryMode"


@pytest.fixture(autouse=True)
def _compiling(spark):
    """Let Spark compile expressions: in other tests it interprets them."""
    before = spark.conf.get(_MODE)
    spark.conf.set(_MODE, "FALLBACK")
    yield
    spark.conf.set(_MODE, before)


def test_second_report_of_a_session_compiles_nothing_again(spark):
    """m16: compiled code takes most of a report's time until Java has optimized it."""
    compiled = spark._jvm.org.apache.spark.metrics.source.CodegenMetrics.METRIC_COMPILATION_TIME()
    rows = spark.createDataFrame(cases.rows(), METER).toArrow().cast(arrow_schema(METER))
    span = SPANS["5m"]
    tables = zip(reduce_rows(rows, span), REDUCED, strict=True)
    known = Grains(*(spark.createDataFrame(*each).localCheckpoint() for each in tables))
    timeline = find_timeline(known)
    dead = spark.createDataFrame(cases.dead_letters(), DEAD).localCheckpoint()

    def report() -> int:
        before = compiled.getCount()
        tenants(known, timeline, dead, span).collect()
        return compiled.getCount() - before

    assert report() > 0
    assert 0 == report()
