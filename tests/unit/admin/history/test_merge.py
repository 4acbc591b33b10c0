"""Histories of nodes add up, and are unknown where a node that knew is gone."""

from evenlane.engine.admin.history.merge import merge_histories
from evenlane.engine.admin.history.messages import Known, LabelColumns, NodeHistory

NAMES = ("backlog", "leaving")
SECOND = 1_000_000_000
FIRST, LAST = 1_000, 1_004  # seconds by the store's clock


def node(name, rows, known, *, first=FIRST, now=LAST, names=NAMES):
    """`rows` has the backlog of each project in each second, with its partitions; everything leaves at 1/s."""
    columns = [LabelColumns(project, [row, [1.0] * len(row)], partitions) for project, row, partitions in rows]
    totals = [sum(column) for column in zip(*(row for _, row, _ in rows), strict=True)] or [0] * 5
    return NodeHistory(
        name, now * SECOND, first, [*names], [totals, [float(len(rows))] * len(totals)], columns,
        [Known(*each) for each in known],
    )  # fmt: skip


def backlogs(answers, project=None, now=LAST):
    looks = merge_histories(answers, NAMES, now * SECOND)
    return [(look.totals if project is None else look.tenants[project])[0] for look in looks]


def test_figures_add_up_over_nodes():
    one = node("a", [("acme", [1, 2, 3, 4, 5], [1, 2])], [(0, LAST, [1])])
    two = node("b", [("acme", [10] * 5, [1, 2]), ("calm", [7] * 5, [2])], [(0, LAST, [2])])
    assert [11, 12, 13, 14, 15] == backlogs([one, two], "acme")
    assert [7] * 5 == backlogs([one, two], "calm")
    assert [18, 19, 20, 21, 22] == backlogs([two, one])
    looks = merge_histories([one, two], NAMES, LAST * SECOND)
    assert (2.0, 3.0) == (looks[0].tenants["acme"][1], looks[0].totals[1])
    assert [] == merge_histories([], NAMES, 0)


def test_partition_that_moved_has_its_past_on_two_nodes():
    """Between two owners nobody knows its backlog: a gap for its projects and the totals, and for nobody else."""
    before = node("a", [("acme", [5, 5, 0, 0, 0], [1]), ("calm", [7] * 5, [2])], [(0, 1_001, [1]), (0, LAST, [2])])
    after = node("b", [("acme", [0, 0, 0, 6, 6], [1])], [(1_003, LAST, [1])])
    assert [5, 5, None, 6, 6] == backlogs([before, after], "acme")
    assert [7] * 5 == backlogs([before, after], "calm")
    assert [12, 12, None, 13, 13] == backlogs([before, after])


def test_past_of_a_dead_node_is_unknown():
    """Figures of the projects on its partitions begin with the new owner; what others had all the time is whole."""
    survivor = node("b", [("acme", [0, 0, 0, 6, 6], [1]), ("calm", [7] * 5, [2])], [(0, LAST, [2]), (1_003, LAST, [1])])
    assert [None, None, None, 6, 6] == backlogs([survivor], "acme")
    assert [7] * 5 == backlogs([survivor], "calm")
    assert [None, None, None, 13, 13] == backlogs([survivor])


def test_partition_without_owner_hides_nothing_else():
    """As in an overview, in which a sentence names it."""
    left = node("a", [("acme", [5, 5, 0, 0, 0], [1, 2])], [(0, LAST, [2]), (0, 1_001, [1])])
    assert [5, 5, 0, 0, 0] == backlogs([left], "acme")


def test_node_that_has_just_joined_adds_nothing_to_the_past():
    old = node("a", [("acme", [5] * 5, [1])], [(0, LAST, [1])])
    new = node("b", [], [])
    assert [5] * 5 == backlogs([old, new], "acme")
    assert [5] * 5 == backlogs([old, new])


def test_cluster_that_has_just_started_knows_nothing_before():
    assert [None, None, None, None, 5] == backlogs([node("a", [("acme", [0, 0, 0, 0, 5], [1])], [(LAST, LAST, [1])])])
    assert [None] * 5 == backlogs([node("a", [], [])])


def test_project_without_topic_may_be_anywhere():
    lost = node("a", [("lost", [5] * 5, [])], [(0, LAST, [1]), (1_002, LAST, [2])])
    assert [None, None, 5, 5, 5] == backlogs([lost], "lost")


def test_clock_of_the_caller_is_used():
    """A node whose clock is 90 s ahead shows the figures at its own times."""
    looks = merge_histories([node("a", [("acme", [5] * 5, [1])], [(0, LAST, [1])])], NAMES, (LAST + 90) * SECOND)
    assert [(second + 90) * SECOND for second in range(FIRST, LAST + 1)] == [look.at for look in looks]


def test_answers_of_two_seconds_have_their_common_part():
    one = node("a", [("acme", [1, 2, 3, 4, 5], [1])], [(0, LAST, [1])])
    two = node("b", [("acme", [20, 30, 40, 50, 60], [2])], [(0, LAST + 1, [2])], first=FIRST + 1)
    assert [22, 33, 44, 55] == backlogs([one, two], "acme")
    far = node("b", [], [], first=FIRST + 500)
    assert [] == backlogs([one, far])


def test_figure_that_a_node_of_another_release_lacks_is_unknown():
    old = node("a", [("acme", [5] * 5, [1])], [(0, LAST, [1])], names=("backlog", "gone"))
    new = node("b", [("calm", [5] * 5, [2])], [(0, LAST, [2])])
    looks = merge_histories([old, new], NAMES, LAST * SECOND)
    assert {(5, None)} == {look.tenants["acme"] for look in looks}
    assert {(5, 1.0)} == {look.tenants["calm"] for look in looks}
    assert {(10, None)} == {look.totals for look in looks}


def test_unknown_figure_makes_the_sum_unknown():
    one = node("a", [("acme", [5] * 5, [1])], [(0, LAST, [1])])
    two = node("b", [("acme", [5] * 5, [1])], [(0, LAST, [2])])
    two.rows[0].figures[0][1] = None
    assert [10, None, 10, 10, 10] == backlogs([one, two], "acme")
