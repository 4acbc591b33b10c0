"""Figures of a tenant's row, for hand-made tenants."""

from itertools import pairwise

import pytest
from pyspark.testing import assertDataFrameEqual

from evenlane.spark.reports.grains import merge_grains
from evenlane.spark.reports.schemas import TENANTS
from evenlane.spark.reports.targets import Targets
from evenlane.spark.reports.tenants import recommended
from tests.dashboards.files import rules
from tests.spark.reports import cases
from tests.spark.reports.rows import after


def first(report, project):
    return report.rows[project][0]


def naive(seconds):
    return after(seconds).replace(tzinfo=None)


def test_growing_backlog_is_never_empty_and_needs_more_quota(report):
    """X7, X8: rates, trend, forecast, causes, and advice with its reason."""
    row = first(report, "growing")
    assert (1450, 87.0 + 10, "growing", "never") == (row.backlog, row.oldest_s, row.trend_word, row.empty_word)
    assert (150 * 29, 100 * 29) == (row.arrived, row.handled)
    assert row.arrival_rate == pytest.approx(14.5)
    assert row.trend == pytest.approx(5.0, rel=0.05)
    assert not row.empty_in_time
    assert (None, None) == (row.empty_s, row.empty_high_s)
    assert (True, "high", pytest.approx(37.0)) == (row.late, row.late_priority, row.late_by_s)
    assert naive(300 - 37) == row.late_since
    assert row.miss_at is None
    assert row.quota_used == pytest.approx(2900 / 3000)
    assert [("quota", 0.9), ("ordered", 0.1)] == [(each.cause, pytest.approx(each.share)) for each in row.causes]
    assert ("raise", 18.0) == (row.advice, row.recommended_qps)
    assert "15 messages/s" in row.reason
    assert "1,450 wait" in row.reason


def test_shrinking_backlog_has_a_forecast_with_a_band(report):
    """X7: the time to empty at the present rate, with bounds from the spread of the grains."""
    row = first(report, "shrinking")
    assert (320, "shrinking", "expected", True) == (row.backlog, row.trend_word, row.empty_word, row.empty_in_time)
    assert row.empty_low_s < row.empty_s < row.empty_high_s
    assert row.empty_s == pytest.approx(320 / 2, rel=0.1)
    assert (False, None) == (row.late, row.miss_at)
    assert "keep" == row.advice


def test_backlog_of_silent_node_stays_and_ages(report):
    """The node writes only one record."""
    one = report.rows["one-record"]
    assert [3] * len(one) == [row.backlog for row in one]
    assert (3, 0, "high") == (one[0].arrived, one[0].handled, one[0].late_priority)
    assert [300.0] * 2 == [later.oldest_s - row.oldest_s for row, later in pairwise(one[:3])]
    assert 4 == len(one)


def test_odd_names_older_records_and_wrong_clocks_are_accepted(report):
    """Records of an older version, and clocks that differ by hours."""
    for name in cases.ODD:
        assert 1 == first(report, name).backlog, name
    older = first(report, "older")
    assert (1, None, None, "unknown") == (older.backlog, older.qps, older.oldest_s, older.advice)
    assert None is older.wait_p50_s
    ahead = first(report, "ahead")
    assert (naive(0), 5, 5) == (ahead.window_start, ahead.backlog, ahead.arrived)


def test_report_of_next_owner_replaces_that_of_a_killed_owner(report):
    """E11: messages that don't add up are reported as uncounted."""
    for name in ("killed", "gone"):
        row = first(report, name)
        assert (0, 9, 4, 5) == (row.backlog, row.arrived, row.handled, row.uncounted), name


def test_lower_epochs_of_a_recreated_environment_come_later(report):
    """E11: an archive has records of two environments, and the epochs of the second have lower numbers."""
    for name in ("rebuilt", "rebuilt-alike"):
        before, row = report.rows[name][:2]
        assert (5, 9, 4) == (before.backlog, before.arrived, before.handled), name
        assert (20, 15, 0) == (row.backlog, row.arrived, row.handled), name  # as if the 5 still waited
        assert 20 == report.rows[name][-1].backlog
    assert (2, 0) == (first(report, "crossed").backlog, first(report, "crossed").in_flight)


def test_waits_match_the_true_distribution(report):
    """Percentiles within a bucket, the maximum exactly."""
    row, true = first(report, "waits"), sorted(cases.WAITED_S)
    for share, name in ((0.5, "wait_p50_s"), (0.95, "wait_p95_s"), (0.99, "wait_p99_s")):
        assert row[name] == pytest.approx(true[int(share * len(true)) - 1], rel=0.1), name
    assert row.wait_max_s == pytest.approx(max(true))
    middle = first(report, "middle")
    assert (3, 3) == (middle.arrived, middle.handled)


def test_tenant_has_the_five_most_frequent_dead_letter_reasons(report):
    row = first(report, "growing")
    assert 14 == row.dead_letters
    reasons = [("boom", 5), ("rejected: no <b>name</b>", 3), ("", 2), ("a", 1), ("b", 1)]
    assert reasons == [tuple(each) for each in row.dead_reasons]


def test_noisy_tenant_is_reported_with_its_effect_on_others(report):
    row = report.noisy[0]
    assert ("hog", True) == (row["project"], row["suffered"])
    assert row["share_handling"] == pytest.approx(17400 / 17690)
    assert row["due"] == pytest.approx(row["share_handling"] / 3)
    assert row["quiet_crowded"] == 1
    assert "others were late" in row["sentence"]


def test_quality_reports_problems_of_the_records(report):
    """Missing, late and unreadable records, wrong clocks, killed and silent nodes: in figures and in words."""
    row, last = report.quality[0], report.quality[-1]
    of_worlds = {world.node.name for world in report.worlds}
    assert (1, 4, 1, 1) == tuple(row[name] for name in ("missing", "skewed", "unreadable", "newer"))
    assert ["node-1004", "node-1025"] == row["skewed_nodes"]
    assert 3 <= row["late"]
    arrived = [first(report, name).arrived for name in ("behind", "held")]
    assert [1, 5] == arrived  # in the window of the event, however late the record came
    assert {("node-1008", 1008), ("node-1024", 1024)} <= {(each["node"], each["partition"]) for each in row["killed"]}
    assert row["uncounted"] >= 5
    assert "node-1008" in row["sentence"]
    assert "node-1006" in last["silent"]
    assert "node-heir-2" not in last["silent"]  # it has no queue to report
    assert not of_worlds & set(last["silent"])
    assert "clocks are wrong on node-1004" in row["sentence"]


def test_tables_have_the_declared_columns_and_changed_quotas(report):
    assert TENANTS.names == report.tenants.collect_schema().names()
    found = {row["project"]: row for row in recommended(report.tenants).collect().to_dicts()}
    latest = {project: rows[-1] for project, rows in report.rows.items()}
    changed = {project: row.recommended_qps for project, row in latest.items() if row.advice in ("raise", "lower")}
    assert changed == {project: row["recommended_qps"] for project, row in found.items()}


def test_merging_is_idempotent(report):
    """A streaming job may write a batch again."""
    again = merge_grains(merge_grains(report.known))
    assertDataFrameEqual(again.waits.where("project = 'waits'"), report.known.waits.where("project = 'waits'"))


def test_targets_equal_those_of_the_alerts():
    recorded = [rule for rule in rules() if "target:seconds" in rule.get("record", "")]
    values = {rule.get("labels", {}).get("priority"): float(rule["expr"][len("vector(") : -1]) for rule in recorded}
    targets = Targets()
    assert {**targets.oldest_s, "": targets.other_s, None: targets.empty_s} == values
