"""A day under several scalers, on virtual time (P10, X6)."""

import itertools

import pytest

from benchmarks.autoscaling.__main__ import CLAIRVOYANT, compare, figures, read_counts
from benchmarks.autoscaling.day import Day, Project, blocked_day, day_of_counts, usual_day
from benchmarks.autoscaling.fleet import EVERY_S, MINUTE, SLOTS, Fleet
from benchmarks.autoscaling.scalers import BOUNDS, MOST, ByBacklog, Clairvoyant, Fixed, Product
from evenlane.engine.control.scaling.policy import Need, Rules


def test_backlog_that_waits_for_its_quota_adds_no_node_and_ten_with_a_scaler_by_backlog():
    """X6: 100,000 messages wait for a quota of 2 msg/s; the control shows that the load can tell them apart."""
    day = blocked_day(hours=3)
    need, control = (Fleet(day, scaler).play() for scaler in (Product(Need()), ByBacklog()))
    assert ([], 2, 1.0) == (need.changes, max(need.nodes), need.in_target)
    assert (12, 10) == (max(control.nodes), max(control.nodes) - min(need.nodes))


def test_short_day_keeps_its_target():
    """P10: three hours with all that happens in a day, so everything rises eight times as fast."""
    day = usual_day(hours=3)
    need, few = (Fleet(day, scaler).play() for scaler in (Product(Need()), Fixed(2)))
    assert need.in_target > 0.95
    assert few.in_target < 0.8


@pytest.mark.full
def test_usual_day_against_a_clairvoyant_and_the_controls():
    """P10, X6: minutes in target, node hours, and no flapping; all arms in one run."""
    results = compare(usual_day(), seed=1)
    table = figures(results)
    need, rules, backlog = (table[name] for name in ("need, p99 wait 2s", "rules", "by backlog"))
    assert need["minutes in target %"] >= 99 > rules["minutes in target %"] > backlog["minutes in target %"]
    assert need["of clairvoyant"] <= 1.35
    assert need["node hours"] < 0.65 * table[f"always {MOST} nodes"]["node hours"]
    assert backlog["changes"] > 4 * need["changes"]
    for name in ("need, p99 wait 2s", "rules"):
        made = results[name].changes
        for (before, _, _), (at, fewer, more) in itertools.pairwise(made):
            assert more > fewer or at - before >= BOUNDS.rest_s


def test_node_that_is_removed_ends_its_handlers():
    """P10: in the model, as on a real node: each message is handled once, whatever the number of nodes does."""
    numbers = itertools.cycle([5, 2, 7, 3])
    day = usual_day(hours=1)
    result = Fleet(day, lambda _look: next(numbers)).play()
    assert sum(at <= day.seconds for times in day.allowed for at in times) == result.messages
    assert len(result.changes) >= 3_600 / EVERY_S - 2


def test_quota_lets_messages_go_at_its_rate():
    day = Day([Project("a", lambda _: 0.0, 0.0, qps=2.0, backlog=100, backlog_at=60.0)], 1.0, 1)
    assert [60.0, 60.5, 61.0] == day.allowed[0][:3].tolist()
    assert (8.0, 0.0) == (day.offered(60.0, 110.0), day.offered(0.0, 60.0))


def test_clairvoyant_asks_before_the_minute_that_needs_more():
    busy = [Project("a", lambda at: 20.0 if at >= 1_800 else 0.1, 20.0, handling_s=4.0)]
    scaler = Clairvoyant(Day(busy, 1.0, 1))
    result = Fleet(Day(busy, 1.0, 1), scaler).play()
    first = result.changes[0]
    assert 1_800 - 2 * MINUTE <= first[0] < 1_800
    assert first[2] > 80 / SLOTS


def test_rules_take_ten_minutes_for_each_node():
    """P10: what the rest costs when the load jumps."""
    jump = [Project("a", lambda at: 15.0 if at >= 600 else 1.0, 15.0, handling_s=4.0)]
    result = Fleet(Day(jump, 1.0, 1), Product(Rules())).play()
    assert [1, 1, 1] == [after - before for _, before, after in result.changes[:3]]
    assert all(later - at >= 600 for (at, *_), (later, *_) in itertools.pairwise(result.changes))


def test_trace_gives_a_day_its_form(tmp_path):
    """P10: a public trace can be played."""
    file = tmp_path / "trace.csv"
    file.write_text("timestamp,value\n2015-02-26 21:40:00,10\n2015-02-26 21:45:00,30\n2015-02-26 21:50:00,20\n")
    counts = read_counts(file)
    assert [(0.0, 10.0), (300.0, 30.0), (600.0, 20.0)] == counts
    day = day_of_counts(counts, slots=40.0)
    first, second = day.offered(0, 300), day.offered(300, 600)
    assert (20, 60) == (pytest.approx(first, rel=0.15), pytest.approx(second, rel=0.15))
    assert {CLAIRVOYANT} <= compare(day, 1).keys()
