"""Partitions that a plan takes away go one after another (Z1, Z6): each has a short pause."""

from evenlane.ring.membership.departures import MOST_GAP_NS, PATIENCE_NS, SPREAD_NS, STEPS, Departures


def departures(*partitions):
    made = Departures()
    made.expect(len(partitions))
    for partition in partitions:
        made.add(partition)
    return made


def test_the_next_goes_when_the_last_is_served_but_not_before_the_gap():
    """Z6."""
    made = departures(4, 2, 9)
    assert [4] == made.take(0)
    assert [] == made.take(MOST_GAP_NS)
    made.arrived(4)
    assert [2] == made.take(MOST_GAP_NS)
    made.arrived(2)
    assert 2 * MOST_GAP_NS == made.wake_at()
    assert [] == made.take(2 * MOST_GAP_NS - 1)
    assert [9] == made.take(2 * MOST_GAP_NS)
    assert (None, False) == (made.wake_at(), bool(made))


def test_one_that_nobody_serves_holds_up_the_others_for_a_moment_only():
    """Z1: never none for longer than the bound; what waits is served meanwhile."""
    made = departures(1, 2)
    assert [1] == made.take(0)
    assert PATIENCE_NS == made.wake_at()
    assert [] == made.take(PATIENCE_NS - 1)
    assert [2] == made.take(PATIENCE_NS)


def test_of_many_several_go_at_the_same_time_one_after_another():
    """P5: so a node with many partitions leaves as soon as one with few."""
    made, gap = departures(*range(3 * STEPS)), SPREAD_NS // (3 * STEPS)
    assert [0] == made.take(0)
    assert [[1], [2], []] == [made.take(gap * turn) for turn in (1, 2, 3)]
    made.arrived(1)
    assert [3] == made.take(3 * gap)


def test_what_stays_after_all_does_not_go():
    made = departures(1, 2)
    made.discard(1)
    assert [2] == made.take(0)
    assert [] == made.take(PATIENCE_NS)


def test_a_node_that_leaves_without_a_plan_lets_go_of_all():
    """P5."""
    made = departures(1, 2, 3)
    assert [1] == made.take(0)
    assert [2, 3] == made.take(0, everything=True)
    assert None is made.wake_at()


def test_an_arrival_nobody_waits_for_changes_nothing():
    made = departures(1)
    made.arrived(7)
    assert [1] == made.take(0)
