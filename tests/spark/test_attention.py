"""Sentences about tenants that need attention."""

from datetime import UTC, datetime

from evenlane.engine.core.status.status import NAMES
from evenlane.spark.out.attention import RUNBOOKS, UNKNOWN_TOPICS, KnownTopics, list_attention_items
from evenlane.spark.reports.targets import Targets
from tests.spark import sample
from tests.support import ROOT

PAGE = ROOT / "docs" / "how-to" / "runbooks.md"

HEALTHY = {
    "late": False, "miss_at": None, "dead": 0, "retried": 0, "dead_letters": 0, "advice": "keep", "causes": [],
    "top_cause": None, "late_since": None, "priorities": [], "backlog": 0, "empty_in_time": True,
}  # fmt: skip


def waiting(messages, oldest_s):
    return [{"priority": "mid", "backlog": messages, "oldest_s": oldest_s, "target_s": 600.0}]


def noticed(known=UNKNOWN_TOPICS, **figures):
    """The items for one tenant that is healthy except for these figures."""
    [row] = sample.tenants(count=1, windows=1)
    return list_attention_items([row | HEALTHY | figures], Targets(), "online", known)


def test_small_steady_backlog_needs_no_attention():
    """A few messages always wait, as others arrive, so there is no time at which the backlog is empty."""
    flowing = {"backlog": 3, "drain_rate": 50.0, "empty_in_time": False, "empty_s": None, "trend_word": "steady"}
    assert [] == noticed(**flowing)
    [item] = noticed(**flowing | {"backlog": 200_000})
    assert ("limit", "will be late") == (item["tone"], item["label"])
    assert "has 200,000 waiting, gone never if it goes on like this; the target is 1h" == item["sentence"]


def test_project_of_which_everything_fails():
    """X13: it is the most urgent, with its error, and since when; not a note."""
    failed = {
        "handled": 0, "handled_rate": 0.0, "retried": 30, "dead": 6, "failed_rate": 0.01,
        "dead_reasons": [{"reason": "RuntimeError: boom", "count": 6}],
    }  # fmt: skip
    [item] = noticed(**failed, failing_since=datetime(2026, 1, 31, 2, 14, tzinfo=UTC))
    assert ("failing", "critical", "fault", "failing 100 %") == (
        item["status"], item["severity"], item["tone"], item["label"],
    )  # fmt: skip
    assert "everything fails since 31 Jan, 02:14 UTC: RuntimeError: boom" == item["sentence"]
    assert "evenlane dlq list acme --env online" in item["remedy"]


def test_error_is_named_as_on_the_page():
    """X13: without the number of attempts; and what expired had no error."""
    reasons = [
        {"reason": "expired", "count": 9}, {"reason": "failed 3 times: RuntimeError: boom", "count": 6},
        {"reason": "rejected: no such device", "count": 1},
    ]  # fmt: skip
    failed = {"handled": 0, "handled_rate": 0.0, "retried": 30, "dead": 16, "failed_rate": 0.01}
    for left, error in ((reasons, ": RuntimeError: boom"), (reasons[2:], ": rejected: no such device"), ([], "")):
        [item] = [each for each in noticed(**failed, dead_reasons=left) if each["status"] == "failing"]
        assert f"everything fails{error}" == item["sentence"]


def test_deliberate_pause_has_a_tone_of_its_own():
    """X13: it isn't late, whatever its oldest message."""
    stopped = {
        "handled": 0, "retried": 0, "dead": 0, "backlog": 1_422, "causes": [{"cause": "paused", "share": 1.0}],
        "top_cause": "paused", "late": True, "late_priority": "high",
    }  # fmt: skip
    known = KnownTopics({"acme": {"qps": 100, "state": "paused"}}, {"acme": " by jo@laptop since 31 Jan, 02:14 UTC"})
    [item] = noticed(**stopped, priorities=waiting(1_422, 7_200.0), known=known)
    assert ("paused", "still") == (item["status"], item["tone"])
    assert "paused by jo@laptop since 31 Jan, 02:14 UTC: 1,422 wait, the oldest for 2h" == item["sentence"]
    [item] = noticed(**stopped, priorities=waiting(1_422, 7_200.0))
    assert "paused: 1,422 wait, the oldest for 2h" == item["sentence"]


def test_deleted_topic_has_the_status_of_the_page():
    """X13: it isn't paused: `topics resume` would bring it back. One that drains loses nothing."""
    stopped = {
        "handled": 0, "retried": 0, "dead": 0, "backlog": 365, "causes": [{"cause": "paused", "share": 1.0}],
        "top_cause": "paused", "late": True, "late_priority": "high", "priorities": waiting(365, 7_200.0),
    }  # fmt: skip
    [item] = noticed(**stopped, known=KnownTopics({}, {}, {"acme": "paused"}))
    assert ("deleted", "warning", "limit") == (item["status"], item["severity"], item["tone"])
    assert "its topic was deleted while messages waited: 365 wait" == item["sentence"]
    assert "`evenlane topics drain acme --env online` has them handled" in item["remedy"]
    draining = KnownTopics({}, {}, {"acme": "draining"})
    assert [] == noticed(backlog=365, priorities=waiting(365, 2.0), known=draining)


def test_flood_is_not_told_to_raise_its_quota():
    """X13: at three times its quota."""
    flood = {
        "arrival_rate": 60.0, "qps": 20.0, "backlog": 7_200, "causes": [{"cause": "quota", "share": 1.0}],
        "top_cause": "quota", "advice": "raise", "recommended_qps": 89.0, "priorities": waiting(7_200, 180.0),
    }  # fmt: skip
    [item] = noticed(**flood)
    assert ("over_quota", "over quota 3 x") == (item["status"], item["label"])
    assert "its producer slows down, or a quota of 62/s clears it in 1h, which is 3.1 x the quota" == item["remedy"]


def test_mostly_means_above_half():
    """The most frequent reason of a few dead letters among many isn't that of most."""
    few = [{"reason": "Rejected: for s0", "count": 6}]
    [item] = noticed(dead=223, handled=10**6, dead_reasons=few)
    assert "got 223 dead letters" == item["sentence"]
    [item] = noticed(dead=11, handled=10**6, dead_reasons=few)
    assert "got 11 dead letters, mostly: Rejected: for s0" == item["sentence"]


def test_most_urgent_come_first():
    """X13: in the order of the status page."""
    [calm] = sample.tenants(count=1, windows=1)
    late = HEALTHY | {"priorities": waiting(40, 900.0), "backlog": 40}
    rows = [
        calm | HEALTHY | {"project": "note", "dead": 2},
        calm | late | {"project": "late"},
        calm | HEALTHY | {"project": "soon", "miss_at": calm["window_end"], "miss_priority": "mid"},
        calm | HEALTHY | {"project": "failing", "handled": 0, "handled_rate": 0.0, "retried": 3, "failed_rate": 0.1},
    ]
    found = [item["project"] for item in list_attention_items(rows, Targets(), "online")]
    assert ["failing", "late", "soon", "note"] == found


def test_each_item_has_a_runbook():
    """X13: a section of the runbooks for each status that the report lists."""
    sections = {line[3:].lower() for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("## ")}
    assert {*RUNBOOKS.values()} <= sections
    assert {*NAMES} - {*RUNBOOKS} == {"deleted", "draining", "waiting", "ok"}
