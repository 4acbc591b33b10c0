"""Rates and trends against known steady loads, with records that aren't aligned with windows."""

import pytest

from evenlane.spark.jobs.folders import Folder
from evenlane.spark.reports.grains import grains
from evenlane.spark.reports.schemas import COUNTED
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.tenants import tenants
from evenlane.spark.reports.timeline import find_timeline
from evenlane.spark.schemas import DEAD, METER
from tests.spark.reports.rows import INTERVAL_S, meter

WINDOW_S = 300
END_S = 663.0
NODES = {"a": 3.0, "b": 7.3}
"""When each node makes its first record, in s after START; the last one is at 663.0 and 657.3 s."""
JOINS_S = 130
# messages per second on each node: arrivals, then how attempts end
LOADS = {
    "steady": {"a": {"arrived": 20, "handled": 20}, "b": {"arrived": 5, "handled": 5}},
    "growing": {"a": {"arrived": 9, "handled": 7}, "b": {"arrived": 4, "handled": 1}},
    "failing": {"a": {"arrived": 12, "retried": 8, "dead": 4}},
    "joins late": {"a": {"arrived": 8, "handled": 8}},
}


def rows():
    for place, (project, nodes) in enumerate(LOADS.items()):
        for node, rates in nodes.items():
            for number in range(int((END_S - NODES[node]) // INTERVAL_S) + 1):
                yield from record(place, project, node, number, rates)


def record(place, project, node, number, rates):
    at = NODES[node] + number * INTERVAL_S
    lasted = at - (JOINS_S if project == "joins late" else 0)
    if lasted <= 0:
        return
    counts = {name: int(rate * lasted) for name, rate in rates.items()}
    ended = {name: count for name, count in counts.items() if name != "arrived"}
    yield meter(
        at, node=node, partition=place * 2 + (node == "b"), project=project, qps=25.0, number=number + 1, after=number,
        sequence=place * 1000 + number * 2 + (node == "b"), span_s=INTERVAL_S if number else at,
        **counts, attempts=sum(ended.values()), backlog=counts["arrived"] - sum(ended.values()),
    )  # fmt: skip


@pytest.fixture(scope="module")
def report(spark, tmp_path_factory):
    """The rows of each project: two whole windows and 63 s of a third."""
    known = Folder(spark, str(tmp_path_factory.mktemp("rates"))).keep_grains(
        grains(spark.createDataFrame(list(rows()), METER), 60, behind=()), "grains"
    )
    found = (
        tenants(known, find_timeline(known), spark.createDataFrame([], DEAD), SPANS["5m"])
        .orderBy("window_start")
        .collect()
    )
    return {project: [row for row in found if row.project == project] for project in LOADS}


def total(project, *names):
    return sum(rates.get(name, 0) for rates in LOADS[project].values() for name in names)


@pytest.mark.parametrize("project", LOADS)
@pytest.mark.parametrize("window", [0, 1, 2])
def test_rates_are_those_of_the_load_in_each_window(report, project, window):
    """X7: within 1 %, also 63 s into a window, and for a tenant that appears in the middle of one."""
    row = report[project][window]
    length = min(WINDOW_S, END_S - window * WINDOW_S)
    active = (WINDOW_S - JOINS_S) / length if (project, window) == ("joins late", 0) else 1
    ended = ("handled", "retried", "dead")
    expected = {
        "arrival_rate": total(project, "arrived"), "drain_rate": total(project, *ended),
        "handled_rate": total(project, "handled"), "failed_rate": total(project, "retried", "dead"),
        "quota_used": total(project, *ended) / 25.0,
    }  # fmt: skip
    assert length == pytest.approx(row.covered_s)
    assert {name: pytest.approx(rate * active, rel=0.01) for name, rate in expected.items()} == {
        name: row[name] for name in expected
    }


@pytest.mark.parametrize("project", LOADS)
def test_windows_add_up_to_the_total(report, project):
    """E11: dividing a difference between two windows loses nothing."""
    last = {}
    for row in rows():
        named = dict(zip(METER.names, row, strict=True))
        if named["project"] == project:
            last[named["node"]] = named
    for name in (*COUNTED, "backlog"):
        reported = report[project][-1].backlog if name == "backlog" else sum(row[name] for row in report[project])
        assert sum(each[name] for each in last.values()) == reported, name
    assert sum(each["arrived"] for each in last.values()) == sum(row.arrived for row in report[project])


@pytest.mark.parametrize("window", [0, 1, 2])
def test_trend_is_the_known_growth(report, window):
    """X7: the last grain is shorter than the others, and ends with each node's own last record."""
    assert [pytest.approx(5.0, rel=0.01), "growing"] == [
        report["growing"][window].trend, report["growing"][window].trend_word
    ]  # fmt: skip
    assert 0.0 == report["steady"][window].trend
