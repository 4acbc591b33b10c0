"""Ratio of received to due share: by hand, and against a max-min oracle (X1, X2)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.telemetry.tenants.fairness import Round, Usage
from tests.oracles.maxmin import poured

SECOND = 1_000_000_000


def used(rounds, weights=None):
    """Return the usage after these rounds, one per second: {project: (got, competes)}."""
    usage = Usage()
    for number, each in enumerate(rounds):
        usage.begin(number * SECOND, 1.0)
        for project, (got, competes) in each.items():
            weight = (weights or {}).get(project, 1.0)
            usage.note(project, Round(got, 10 if got else 0, float(competes), 1_000, weight))
    return usage


def test_satisfied_projects_have_a_ratio_of_one():
    assert {"a": 1.0, "b": 1.0} == used([{"a": (3.0, False), "b": (1.0, False)}] * 5).sample().ratios()


def test_starved_project_and_noisy_neighbour_are_visible():
    """Both want more, and one gets nine tenths."""
    assert {"noisy": 1.8, "quiet": 0.2} == pytest.approx(
        used([{"noisy": (9.0, True), "quiet": (1.0, True)}] * 20).sample().ratios()
    )


def test_project_that_gets_nothing_has_a_ratio_of_zero():
    assert (
        0.0 == used([{"noisy": (9.0, True)}, {"noisy": (9.0, True), "none": (0.0, True)}] * 9).sample().ratios()["none"]
    )


def test_shares_are_weighted():
    rounds = [{"heavy": (6.0, True), "light": (2.0, True)}] * 20
    assert {"heavy": 1.0, "light": 1.0} == pytest.approx(used(rounds, {"heavy": 3.0}).sample().ratios())


def test_light_project_without_a_backlog_is_not_starved():
    """Its one message per second finds all slots busy in most samples, and is handled all the same."""
    usage = Usage()
    for number in range(20):
        usage.begin(number * SECOND, 1.0)
        usage.note("hog", Round(63.0, 63, 1.0, 1_000_000, 1.0))
        usage.note("light", Round(0.05, 1, float(number % 5 < 3), 1, 1.0))
    assert 0.9 < usage.sample().ratios()["light"] <= 1.0


def test_occasional_waiting_is_no_unmet_demand():
    """A quiet project finds all slots busy in one sample of five."""
    rounds = [{"noisy": (9.0, True), "quiet": (0.5, number % 5 == 0)} for number in range(20)]
    assert 1.0 == pytest.approx(used(rounds).sample().ratios()["quiet"])


def test_old_rounds_do_not_count():
    usage = used([{"gone": (9.0, True)}] * 20)
    usage.begin(400 * SECOND, 1.0)
    usage.note("here", Round(1.0, 1, 1.0, 9, 1.0))
    assert {"here": pytest.approx(1.0)} == usage.sample().ratios()
    assert 2 == len([*usage.tidy()])
    assert {"here"} == usage.sample().known.keys()


@given(
    st.lists(
        st.tuples(st.floats(0.01, 100), st.floats(0.1, 10), st.booleans()), min_size=1, max_size=12,
    )
)  # fmt: skip
def test_ratios_match_the_max_min_oracle(tenants):
    usage = Usage()
    usage.begin(0, 1.0)
    for number, (got, weight, competes) in enumerate(tenants):
        usage.note(str(number), Round(got, 1, float(competes), 1_000_000, weight))
    got = [each[0] for each in tenants]
    wants = [math.inf if competes else mine for mine, _, competes in tenants]
    due = poured(sum(got), [weight for _, weight, _ in tenants], [min(want, sum(got)) for want in wants])
    ratios = usage.sample().ratios()
    for number, (mine, share) in enumerate(zip(got, due, strict=True)):
        if share > 1e-3:
            assert mine / share == pytest.approx(ratios[str(number)], rel=1e-2)
