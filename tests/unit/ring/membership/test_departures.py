"""Partitions that a plan takes away leave one after another (Z1, Z6). test_member_release.py shows the rest."""

from evenlane.ring.membership.departures import MOST_GAP_NS, SPREAD_NS, STEPS, Departures


def departures(*partitions):
    made = Departures()
    made.expect(len(partitions))
    for partition in partitions:
        made.add(partition)
    return made


def test_next_partition_leaves_when_the_last_is_served_and_after_the_gap():
    """Z6."""
    made = departures(4, 2, 9)
    assert [4] == made.take_due(0)
    assert [] == made.take_due(MOST_GAP_NS)
    made.note_arrival(4)
    assert [2] == made.take_due(MOST_GAP_NS)
    made.note_arrival(2)
    assert 2 * MOST_GAP_NS == made.wake_at()
    assert [] == made.take_due(2 * MOST_GAP_NS - 1)
    assert [9] == made.take_due(2 * MOST_GAP_NS)
    assert (None, False) == (made.wake_at(), bool(made))


def test_several_of_many_partitions_leave_at_the_same_time():
    """P5: a node with many partitions leaves as soon as one with few."""
    made, gap = departures(*range(3 * STEPS)), SPREAD_NS // (3 * STEPS)
    assert [0] == made.take_due(0)
    assert [[1], [2], []] == [made.take_due(gap * turn) for turn in (1, 2, 3)]
    made.note_arrival(1)
    assert [3] == made.take_due(3 * gap)


def test_arrival_of_another_partition_has_no_effect():
    made = departures(1)
    made.note_arrival(7)
    assert [1] == made.take_due(0)
