"""P7, E1: how a gateway shares out its workers."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.iot.worker_shares import WorkerShares


@pytest.mark.parametrize(("hanging", "each"), [(1, 16), (2, 11), (3, 8), (7, 4)])
def test_hanging_projects_leave_as_much_as_each_has(hanging, each):
    shares = WorkerShares(32)
    got = Counter(project for _ in range(32) for project in range(hanging) if shares.begin(str(project)))
    assert each == max(got.values())
    assert 32 - sum(got.values()) >= min(got.values()) - 1


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans())))
def test_project_without_a_put_gets_any_free_worker(steps):
    """And what has ended counts no more."""
    shares, puts = WorkerShares(4), Counter()
    for project, begins in steps:
        free = 4 - puts.total()
        if begins:
            may = shares.begin(project)
            assert (puts[project] < free) == may
            puts[project] += may
        elif puts[project]:
            shares.end(project)
            puts[project] -= 1
    assert shares.begin("d") == (puts.total() < 4)
