"""What a node could use of a topic (W)."""

import pytest

from engine.shares.demand import Demand, wanted

SECOND = 1_000_000_000


def test_a_rate_is_known_from_the_second_look_on():
    demand = Demand()
    assert demand.look("acme", 100, 0, 50.0) is None
    assert demand.look("acme", 150, SECOND, 50.0) == 50
    assert demand.look("acme", 160, SECOND + 1, 50.0) == 50, "too soon for another"
    assert demand.look("acme", 250, 3 * SECOND, 50.0) == 50


def test_under_another_quota_nothing_is_known():
    """X4: what was used under the old one says nothing of what could be used now."""
    demand = Demand()
    demand.look("acme", 0, 0, 1.0)
    assert demand.look("acme", 1, SECOND, 1.0) == 1
    assert demand.look("acme", 1, SECOND, 500.0) is None


def test_those_that_went_are_forgotten():
    """M."""
    demand = Demand()
    for project in ("acme", "blue"):
        demand.look(project, 0, 0, 1.0)
    demand.only({"blue"})
    assert demand.look("acme", 9, SECOND, 1.0) is None
    assert demand.look("blue", 9, SECOND, 1.0) == 9


@pytest.mark.parametrize(
    ("rate", "waiting", "most", "want"),
    [(0, None, 150, 0), (100, None, 150, 110), (20, 30, 150, 50), (20, 3_000, 150, 150), (200, 10, 150, 200)],
)
def test_what_it_wants(rate, waiting, most, want):
    """Rate and backlog, as far as its groups may have it; where nothing waits, the rate and a little more."""
    assert want == wanted(rate, waiting, most)
