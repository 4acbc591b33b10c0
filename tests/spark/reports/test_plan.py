"""Scale: nothing is collected to the driver, and no step runs in one task, except sums of partial sums."""

import pytest

from benchmarks.report_scale import funnels, generate
from evenlane.spark.jobs.folders import Folder
from evenlane.spark.reports.grains import grains
from evenlane.spark.reports.noisy import noisy
from evenlane.spark.reports.quality import quality
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.tenants import recommended, tenants
from evenlane.spark.schemas import DEAD
from tests.spark.reports.partitions import two_partitions

pytestmark = pytest.mark.full


@pytest.fixture(autouse=True)
def _several_partitions(spark):
    """With one, each step would run in one task."""
    with two_partitions(spark):
        yield


def test_tables_have_distributed_plans_and_start_no_job(spark, tmp_path):
    """Only storing intermediate tables starts jobs."""
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
    spark.sparkContext.setJobGroup("plans", "jobs that planning starts")
    found = tenants(known, spark.createDataFrame([], DEAD), SPANS["5m"])
    planned(found)
    spark.sparkContext.setJobGroup("tables", "jobs that store tables")
    found = folder.keep(found, "tenants")
    spark.sparkContext.setJobGroup("plans", "jobs that planning starts")
    planned(noisy(found), quality(known, found, SPANS["5m"]), recommended(found))


def test_single_task_step_is_found(spark):
    rows = generate(spark, 1000, 100)
    assert 1 == len(funnels(rows.repartition(1).selectExpr("row_number() over (order by at) as place")))
    assert [] == funnels(rows.selectExpr("max(at)"))
