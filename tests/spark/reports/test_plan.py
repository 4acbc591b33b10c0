"""Issue 8, scale: nothing is collected to the driver, no step is one task's, but for sums of sums."""

import pytest

from benchmarks.report_scale import funnels, generated
from evenlane.spark.jobs.folders import Folder
from evenlane.spark.reports.grains import grains
from evenlane.spark.reports.noisy import noisy
from evenlane.spark.reports.quality import quality
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.tenants import recommended, tenants
from evenlane.spark.schemas import DEAD

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


def test_no_step_is_one_tasks_and_none_is_done_before_the_end(spark, tmp_path):
    """Issue 8, scale: the plan of each table, and that making it starts no job (but where jobs keep tables)."""
    folder = Folder(spark, str(tmp_path))
    tracker = spark.sparkContext.statusTracker()

    def planned(*tables):
        assert [] == [step for table in tables for step in funnels(table)]
        assert [] == tracker.getJobIdsForGroup("plans")

    spark.sparkContext.setJobGroup("plans", "what making the plans starts")
    small = grains(generated(spark, 1000, 100), 60)
    planned(*small)
    spark.sparkContext.setJobGroup("tables", "what jobs keep")
    known = folder.kept_grains(small, "grains")
    spark.sparkContext.setJobGroup("plans", "what making the plans starts")
    found = tenants(known, spark.createDataFrame([], DEAD), SPANS["5m"])
    planned(found)
    spark.sparkContext.setJobGroup("tables", "what jobs keep")
    found = folder.kept(found, "tenants")
    spark.sparkContext.setJobGroup("plans", "what making the plans starts")
    planned(noisy(found), quality(known, found, SPANS["5m"]), recommended(found))


def test_a_funnel_is_seen(spark):
    """Issue 8, scale: the check can fail."""
    rows = generated(spark, 1000, 100)
    assert 1 == len(funnels(rows.repartition(1).selectExpr("row_number() over (order by at) as place")))
    assert [] == funnels(rows.selectExpr("max(at)"))
