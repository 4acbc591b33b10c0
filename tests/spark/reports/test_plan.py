"""Scale: no step of the tenants' rows runs in one task, except sums of partial sums."""

import pytest

from benchmarks.report_scale import funnels, generate
from evenlane.spark.jobs.folders import Folder
from evenlane.spark.reports.grains import grains
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.tenants import tenants
from evenlane.spark.reports.timeline import find_timeline
from evenlane.spark.schemas import DEAD
from tests.spark.reports.partitions import two_partitions

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def _several_partitions(spark):
    """With one, each step would run in one task."""
    with two_partitions(spark):
        yield


def test_tenants_have_distributed_plans_and_start_no_job(spark, tmp_path):
    """Only storing grains and finding their timeline start jobs."""
    folder = Folder(spark, str(tmp_path))
    tracker = spark.sparkContext.statusTracker()

    def planned(*tables):
        assert [] == [step for table in tables for step in funnels(table)]
        assert [] == tracker.getJobIdsForGroup("plans")

    spark.sparkContext.setJobGroup("plans", "jobs that planning starts")
    small = grains(generate(spark, 1000, 100), 60)
    planned(*small)
    spark.sparkContext.setJobGroup("tables", "jobs that store tables")
    known = folder.keep_grains(small, "grains")
    timeline = find_timeline(known)
    spark.sparkContext.setJobGroup("plans", "jobs that planning starts")
    planned(tenants(known, timeline, spark.createDataFrame([], DEAD), SPANS["5m"]))


def test_single_task_step_is_found(spark):
    rows = generate(spark, 1000, 100)
    assert 1 == len(funnels(rows.repartition(1).selectExpr("row_number() over (order by at) as place")))
    assert [] == funnels(rows.selectExpr("max(at)"))
