"""History of a node: what its overviews have shown in the last two minutes, and what it knew."""

from array import array

from evenlane.engine.core.records.backlog_answer import Rates
from evenlane.engine.telemetry.tenants.backlog import TenantBacklog
from evenlane.engine.telemetry.tenants.history import FIGURES, KEPT_S, MOST_LABELS, TenantHistory, sum_figures

WIDTH = len(FIGURES)


def figures(backlog):
    return array("f", [backlog, *[0.0] * (WIDTH - 1)])


def history(*rounds, others=0):
    """`rounds` are (second, {label: backlog})."""
    made = TenantHistory()
    for second, backlogs in rounds:
        made.add(second, {label: figures(each) for label, each in backlogs.items()}, [1, 2], others)
    return made


def backlogs(made, label, first, last):
    return made.copy().columns(label, range(first, last + 1))[0]


def test_each_second_has_what_an_overview_showed():
    """A round that is late leaves the figures of the last one; at rest, a label has none."""
    made = history((100, {"acme": 5}), (101, {"acme": 6}), (104, {"acme": 7}), (105, {}), (107, {"acme": 1}))
    assert [0, 5, 6, 6, 6, 7, 0, 0, 1, 1] == backlogs(made, "acme", 99, 108)
    assert [0, 5, 6, 6, 6, 7, 0, 0, 1, 1] == made.copy().sums(range(99, 109))[0]


def test_label_at_rest_stays_at_zero():
    made = history((100, {"acme": 5}), (101, {}))
    assert [5, 0, 0] == backlogs(made, "acme", 100, 102)


def test_two_rounds_in_a_second_leave_the_later_one():
    assert [3] == backlogs(history((100, {"acme": 5}), (100, {"acme": 3})), "acme", 100, 100)


def test_two_minutes_are_kept_in_bounded_memory():
    made = history(*((100 + number, {"acme": number}) for number in range(300)))
    assert [*range(180, 300)] == backlogs(made, "acme", 400 - KEPT_S, 399)
    [only] = made.copy().labels.values()
    assert 4 * WIDTH * KEPT_S == len(only.values) * only.values.itemsize
    many = history((100, {f"p{number}": 1 for number in range(MOST_LABELS + 5)}))
    assert MOST_LABELS == len(many.copy().labels)
    assert [MOST_LABELS + 5] == many.copy().sums(range(100, 101))[0]


def test_label_that_is_silent_for_two_minutes_is_forgotten():
    made = history((100, {"acme": 5}), *((second, {}) for second in range(101, 360)))
    assert {} == made.copy().labels


def test_project_that_was_among_the_others_has_no_past():
    made = history((100, {"other": 5}), (101, {"acme": 5}), others=3)
    assert [None, 5] == backlogs(made, "acme", 100, 101)
    assert {"acme"} == made.copy().labels.keys()  # the others have no name
    made = history((100, {"acme": 5}), (101, {"acme": 6}))
    made.forget("acme")
    assert {} == made.copy().labels


def test_unknown_rate_is_unknown():
    unknown, known = TenantBacklog(), TenantBacklog()
    known.backlog, known.rates = 4, Rates(2.0, 1.0, 0.5, 30.0)
    unknown.backlog = 3
    both = sum_figures({("acme", 0): unknown, ("acme", 1): known, ("b", 0): known})
    made = TenantHistory()
    made.add(100, both, [], 0)
    assert [[7], [None], [None], [None]] == made.copy().columns("acme", range(100, 101))
    assert [[4], [2], [1.0], [0.5]] == made.copy().columns("b", range(100, 101))
    assert [[11], [None], [None], [None]] == made.copy().sums(range(100, 101))


def test_clock_that_jumps_begins_anew():
    """Back or forward; a step back of a second is a correction."""
    for second in (90, 200):
        made = history((100, {"acme": 5}), (second, {"acme": 6}))
        assert [0, 6] == backlogs(made, "acme", second - 1, second)
        assert [(second, second, [1, 2])] == made.copy().known
    made = history((100, {"acme": 5}), (99, {"acme": 6}))
    assert [6] == backlogs(made, "acme", 100, 100)


def test_known_partitions_have_times():
    """Those that came, went, and came back; earlier than two minutes ago is forgotten."""
    made = TenantHistory()
    for second, partitions in ((100, [1]), (101, [1, 2]), (102, [2]), (103, [1, 2])):
        made.add(second, {}, partitions, 0)
    assert {(101, 103, (2,)), (103, 103, (1,)), (100, 101, (1,))} == known(made)
    made.end()
    assert {(101, 103, (2,)), (103, 103, (1,)), (100, 101, (1,))} == known(made)
    for second in range(104, 104 + KEPT_S, 30):
        made.add(second, {}, [], 0)
    assert {(101, 103, (2,)), (103, 103, (1,)), (100, 101, (1,))} == known(made)
    made.add(104 + KEPT_S, {}, [], 0)
    assert set() == known(made)


def known(made):
    return {(first, last, tuple(partitions)) for first, last, partitions in made.copy().known}


def test_copy_stays_as_it_is():
    made = history((100, {"acme": 5}))
    copied = made.copy()
    made.add(101, {"acme": figures(9)}, [1], 0)
    assert [5, 5] == copied.columns("acme", range(100, 102))[0]
    assert 100 == copied.last
