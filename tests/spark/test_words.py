"""What needs attention, in sentences (issue 8.4)."""

from evenlane.spark.out.words import attention
from evenlane.spark.reports.targets import Targets
from tests.spark import sample


def noticed(**figures):
    """Of one tenant that is well but for these figures."""
    [row] = sample.tenants(count=1, windows=1)
    well = {
        "late": False,
        "miss_at": None,
        "dead": 0,
        "dead_letters": 0,
        "advice": "keep",
        "causes": [],
        "top_cause": None,
    }
    return attention([row | well | figures], Targets(), "online")


def test_a_tenant_whose_messages_pass_through_needs_none():
    """Issue 8.4: that some always wait, as others come, is no alarm, though there is no time when none will."""
    flowing = {"backlog": 3, "drain_rate": 50.0, "empty_in_time": False, "empty_s": None, "trend_word": "steady"}
    assert [] == noticed(**flowing)
    [item] = noticed(**flowing | {"backlog": 200_000})
    assert "limit" == item["tone"]
    assert "has 200,000 waiting, gone never if it goes on like this; the target is 1 h." == item["sentence"]
