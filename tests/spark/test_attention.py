"""Sentences about tenants that need attention."""

from evenlane.spark.out.attention import list_attention_items
from evenlane.spark.reports.targets import Targets
from tests.spark import sample


def noticed(**figures):
    """The items for one tenant that is healthy except for these figures."""
    [row] = sample.tenants(count=1, windows=1)
    healthy = {
        "late": False,
        "miss_at": None,
        "dead": 0,
        "dead_letters": 0,
        "advice": "keep",
        "causes": [],
        "top_cause": None,
    }
    return list_attention_items([row | healthy | figures], Targets(), "online")


def test_small_steady_backlog_needs_no_attention():
    """A few messages always wait, as others arrive, so there is no time at which the backlog is empty."""
    flowing = {"backlog": 3, "drain_rate": 50.0, "empty_in_time": False, "empty_s": None, "trend_word": "steady"}
    assert [] == noticed(**flowing)
    [item] = noticed(**flowing | {"backlog": 200_000})
    assert "limit" == item["tone"]
    assert "has 200,000 waiting, gone never if it goes on like this; the target is 1 h." == item["sentence"]
