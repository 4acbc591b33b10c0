"""X8: for which share of the recent time a priority waited, in words for outsiders."""

import pytest

from evenlane.engine.admin.why.recent_waits import explain_waits
from evenlane.engine.core.records.backlog_answer import NodeAnswer, QueueCount

LAST = "in the last 53s, mid waited"


def answer(over_s=53.0, priority="mid", node="a", **waited):
    return NodeAnswer(node, parts={priority: QueueCount(waited=waited)}, waited_s=over_s)


@pytest.mark.parametrize(
    ("groups", "waited", "sentence"),
    [
        (1, {"quota": 53.0}, "in the last 53s, mid waited for quota all of the time (1 group)"),
        (1, {"quota": 54.0}, "in the last 53s, mid waited for quota all of the time (1 group)"),
        (1, {"quota": 26.5}, "in the last 53s, mid waited for quota 50% of the time (1 group)"),
        (
            1, {"fairness": 5.3, "quota": 42.4},
            "in the last 53s, mid waited for quota 80% of the time, and 10% for fairness (1 group)",
        ),
        (1, {"quota": 0.1}, "in the last 53s, mid waited for quota less than 1% of the time (1 group)"),
        (8, {"quota": 8 * 53.0}, "in the last 53s, mid waited for quota all of the time (8 of 8 groups)"),
        (
            8, {"quota": 4 * 53.0, "handlers_busy": 4 * 53.0},
            "in the last 53s, mid waited for handlers_busy 50% of the time, and 50% for quota (8 of 8 groups)",
        ),
        (8, {"quota": 2.4 * 53}, "in the last 53s, mid waited for quota in 2.4 of 8 groups at a time, on average"),
        (
            8, {"quota": 1.5 * 53, "fairness": 0.5 * 53, "ordered": 0.001},
            f"{LAST} in 2 of 8 groups at a time, on average: 75% of it for quota, 25% of it for fairness",
        ),
        (8, {"quota": 0.5}, f"{LAST} for quota in less than 0.1 of 8 groups at a time, on average"),
        (None, {"no_owner": 3 * 53.0}, "in the last 53s, mid waited for no_owner in 3 groups at a time, on average"),
        (2, {}, ""),
    ],
)  # fmt: skip
def test_sentence_has_shares_of_the_time(groups, waited, sentence):
    assert sentence == explain_waits("mid", groups, [answer(**waited)])


def test_nodes_add_up_over_their_own_periods():
    """A node that has just started reports less time."""
    answers = [answer(60.0, quota=60.0), answer(10.0, node="b", quota=10.0), answer(60.0, "low", "c", quota=30.0)]
    assert "in the last 1m, mid waited for quota all of the time (2 of 2 groups)" == explain_waits("mid", 2, answers)


def test_node_that_has_not_looked_yet_says_nothing():
    assert "" == explain_waits("mid", 1, [answer(0.0, quota=1.0), NodeAnswer("b")])
