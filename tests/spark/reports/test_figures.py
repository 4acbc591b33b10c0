"""Each figure of a tenant's row, on tenants made by hand."""

from itertools import pairwise

import pytest
from pyspark.testing import assertDataFrameEqual

from evenlane.spark.reports.grains import grains, merged
from evenlane.spark.reports.schemas import TENANTS
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.targets import Targets
from evenlane.spark.reports.tenants import recommended, tenants
from evenlane.spark.schemas import DEAD, METER
from tests.dashboards.files import rules
from tests.spark.reports import cases
from tests.spark.reports.rows import after

pytestmark = pytest.mark.timeout(300)  # the one report for all of them takes long on a busy machine


def first(report, project):
    return report.rows[project][0]


def naive(seconds):
    return after(seconds).replace(tzinfo=None)


def test_a_growing_backlog_is_never_gone_and_its_quota_should_be_raised(report):
    """X7, X8, issue 8.3: rates, trend, forecast, cause and advice, each with its reason."""
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


def test_grains_that_the_datas_ends_cut_off_count_by_their_length(spark):
    """X7, issue 8.3: a report some minutes after the start has the rates, trend and advice that it will have."""
    known = grains(spark.createDataFrame(cases.young(), METER), SPANS["1h"].grain_s)
    [row] = tenants(known, spark.createDataFrame([], DEAD), SPANS["1h"]).collect()
    assert (7320, 366.0, 183.0) == (row.backlog, row.covered_s, row.oldest_s)
    # (a grain has what nodes told up to an interval before its end)
    assert [1.0, 1.0, 20.0, 40.0] == pytest.approx([row.quota_used, row.quota_peak, row.trend, row.arrival_rate], 0.06)
    assert ("raise", 51.0) == (row.advice, row.recommended_qps)  # 40/s, what waits within an hour, a fifth more
    # what comes an hour after the start will wait an hour
    assert ("low", pytest.approx(7200 - 366, abs=200)) == (
        row.miss_priority,
        (row.miss_at - naive(516)).total_seconds(),
    )


def test_a_shrinking_backlog_is_gone_in_time_with_a_band(report):
    """X7: time to empty at the rate it has, with what the grains' spread allows."""
    row = first(report, "shrinking")
    assert (320, "shrinking", "expected", True) == (row.backlog, row.trend_word, row.empty_word, row.empty_in_time)
    assert row.empty_low_s < row.empty_s < row.empty_high_s
    assert row.empty_s == pytest.approx(320 / 2, rel=0.1)
    assert (False, None) == (row.late, row.miss_at)
    assert "keep" == row.advice


def test_one_record_and_silence_keep_their_backlog(report):
    """Issue 8, bad input: one record; a node that is heard no more leaves what it told, and the age grows on."""
    one = report.rows["one-record"]
    assert [3] * len(one) == [row.backlog for row in one]
    assert (3, 0, "high") == (one[0].arrived, one[0].handled, one[0].late_priority)
    assert [300.0] * 2 == [later.oldest_s - row.oldest_s for row, later in pairwise(one[:3])]
    assert 4 == len(one)


def test_odd_names_older_records_and_wrong_clocks_are_borne(report):
    """Issue 8, bad input: tenants with odd names, an older version's records, clocks that disagree by hours."""
    for name in cases.ODD:
        assert 1 == first(report, name).backlog, name
    older = first(report, "older")
    assert (1, None, None, "unknown") == (older.backlog, older.qps, older.oldest_s, older.advice)
    assert None is older.wait_p50_s
    ahead = first(report, "ahead")
    assert (naive(0), 5, 5) == (ahead.window_start, ahead.backlog, ahead.arrived)


def test_what_a_killed_owner_left_is_gone_once_the_next_one_tells(report):
    """Issue 8.1: the next owner tells all there is; what doesn't add up is told as uncounted."""
    for name in ("killed", "gone"):
        row = first(report, name)
        assert (0, 9, 4, 5) == (row.backlog, row.arrived, row.handled, row.uncounted), name


def test_epochs_that_begin_anew_follow_those_that_were_there(report):
    """Issue 8.3, E11: an archive tells of two environments, of which the second's epochs have lower numbers."""
    for name in ("rebuilt", "rebuilt-alike"):
        before, row = report.rows[name][:2]
        assert (5, 9, 4) == (before.backlog, before.arrived, before.handled), name
        assert (20, 15, 0) == (row.backlog, row.arrived, row.handled), name  # as if the 5 were among what waits now
        assert 20 == report.rows[name][-1].backlog
    assert (2, 0) == (first(report, "crossed").backlog, first(report, "crossed").in_flight)


def test_waits_are_what_they_were(report):
    """Issue 8.3: percentiles within a bucket of the truth, the longest as it was."""
    row, true = first(report, "waits"), sorted(cases.WAITED_S)
    for share, name in ((0.5, "wait_p50_s"), (0.95, "wait_p95_s"), (0.99, "wait_p99_s")):
        assert row[name] == pytest.approx(true[int(share * len(true)) - 1], rel=0.1), name
    assert row.wait_max_s == pytest.approx(max(true))
    middle = first(report, "middle")
    assert (3, 3) == (middle.arrived, middle.handled)


def test_dead_letters_have_their_top_reasons(report):
    """Issue 8.3: how many, and the five reasons that most have, the most frequent first."""
    row = first(report, "growing")
    assert 14 == row.dead_letters
    reasons = [("boom", 5), ("rejected: no <b>name</b>", 3), ("", 2), ("a", 1), ("b", 1)]
    assert reasons == [tuple(each) for each in row.dead_reasons]


def test_a_hog_stands_beside_those_it_hurt(report):
    """Issue 8.3: who has much more than was due, and whether the others were late for want of handlers."""
    row = report.noisy[0]
    assert ("hog", True) == (row.project, row.suffered)
    assert row.share_handling == pytest.approx(17400 / 17690)
    assert row.due == pytest.approx(row.share_handling / 3)
    assert row.quiet_crowded == 1
    assert "others were late" in row.sentence


def test_quality_says_what_is_wrong(report):
    """Issue 8.3: missing, doubled, late, wrong clocks, unreadable, killed, silent: in figures and in words."""
    row, last = report.quality[0], report.quality[-1]
    of_worlds = {world.node.name for world in report.worlds}
    assert (1, 4, 1, 1) == (row.missing, row.skewed, row.unreadable, row.newer)
    assert ["node-1004", "node-1025"] == row.skewed_nodes
    assert 3 <= row.late
    arrived = [first(report, name).arrived for name in ("behind", "held")]
    assert [1, 5] == arrived  # when it was, however late it came
    assert {("node-1008", 1008), ("node-1024", 1024)} <= {tuple(each) for each in row.killed}
    assert row.uncounted >= 5
    assert "node-1008" in row.sentence
    assert "node-1006" in last.silent
    assert "node-heir-2" not in last.silent  # it has nothing that would be missed
    assert not of_worlds & set(last.silent)
    assert "clocks are wrong on node-1004" in row.sentence


def test_schema_and_advice_are_tables(report):
    """Issue 8.3, 8.4: exactly the columns that are declared; quotas that should change, of the latest window."""
    assert TENANTS.names == report.tenants.columns
    found = {row.project: row for row in recommended(report.tenants).collect()}
    latest = {project: rows[-1] for project, rows in report.rows.items()}
    changed = {project for project, row in latest.items() if row.advice in ("raise", "lower")}
    assert changed == found.keys()


def test_merging_again_changes_nothing(report):
    """Issue 8.4: a streaming job may write a batch again."""
    again = merged(merged(report.known))
    assertDataFrameEqual(again.waits.where("project = 'waits'"), report.known.waits.where("project = 'waits'"))


def test_targets_are_those_of_the_alerts():
    """Issue 8.3: one word of what is late, in alerts, dashboards and reports."""
    recorded = [rule for rule in rules() if "target:seconds" in rule.get("record", "")]
    values = {rule.get("labels", {}).get("priority"): float(rule["expr"][len("vector(") : -1]) for rule in recorded}
    targets = Targets()
    assert {**targets.oldest_s, "": targets.other_s, None: targets.empty_s} == values
