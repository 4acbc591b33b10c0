"""Sums of bands, against a plain oracle."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.admin.overview.aggregate import merge_bands
from evenlane.engine.admin.overview.messages import Band
from evenlane.engine.core.status.words import main_reason
from tests.support.overview_answers import bands


def plain_sum(parts):
    """Add up field by field."""
    whole = {"backlog": 0, "in_flight": 0, "oldest": -1.0, "gone": 0.0, "reasons": {}}
    for part in parts:
        whole["backlog"] += part.backlog
        whole["in_flight"] += part.in_flight
        if part.oldest_s is not None and part.oldest_s > whole["oldest"]:
            whole["oldest"] = part.oldest_s
        for reason in part.reasons:
            whole["reasons"][reason] = whole["reasons"].get(reason, 0) + part.reasons[reason]
        if part.gone_s is not None:
            whole["gone"] = max(whole["gone"], part.gone_s)
    return whole


def test_plain_sum_by_hand():
    one = Band(3, 1, 2.0, 1.0, 1.0, 7.0, False, {"quota": 1})
    other = Band(4, 0, 9.0, 1.0, 1.0, 5.0, False, {"quota": 2, "paused": 1})
    assert {
        "backlog": 7,
        "in_flight": 1,
        "oldest": 9.0,
        "gone": 7.0,
        "reasons": {"quota": 3, "paused": 1},
    } == plain_sum([one, other])


@given(st.lists(bands(), max_size=5))
def test_sum_equals_the_plain_sum(parts):
    """Counts add up, ages and forecasts are the greatest, and an unknown value is never taken for 0."""
    whole, plain = merge_bands(parts), plain_sum(parts)
    assert (plain["backlog"], plain["in_flight"]) == (whole.backlog, whole.in_flight)
    assert plain["reasons"] == whole.reasons
    assert (None if plain["oldest"] < 0 else plain["oldest"]) == whole.oldest_s
    for rate in ("arriving", "leaving"):
        each = [getattr(part, rate) for part in parts]
        unknown = None in each
        assert unknown == (getattr(whole, rate) is None)
        if not unknown:
            assert sum(each) == pytest.approx(getattr(whole, rate))
    assert whole.never == any(part.never for part in parts)
    if any(part.gone_s is None for part in parts):
        assert whole.gone_s is None
    else:
        assert plain["gone"] == whole.gone_s


@given(st.lists(bands(), max_size=5), st.randoms(use_true_random=False))
def test_sum_is_independent_of_order_and_grouping(parts, chance: random.Random):
    mixed = chance.sample(parts, len(parts))
    assert merge_bands(parts) == merge_bands(mixed)
    cut = chance.randint(0, len(parts))
    halves = merge_bands([merge_bands(mixed[:cut]), merge_bands(mixed[cut:])])
    whole = merge_bands(parts)
    assert (whole.backlog, whole.oldest_s, whole.gone_s, whole.never, whole.reasons) == (
        halves.backlog, halves.oldest_s, halves.gone_s, halves.never, halves.reasons,
    )  # fmt: skip
    assert (whole.arriving is None) == (halves.arriving is None)


@given(bands())
def test_empty_band_adds_nothing(band):
    assert merge_bands([band]) == merge_bands([Band(), band, Band()])
    assert Band() == merge_bands([])


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        ({}, None),
        ({"quota": 1}, "quota"),
        ({"quota": 1, "fairness": 2}, "fairness"),
        ({"quota": 2, "fairness": 2}, "fairness"),  # by name
        ({"quota": 1, "not_due": 9, "higher_priority": 9}, "quota"),
        ({"not_due": 2, "higher_priority": 1}, "not_due"),
    ],
)
def test_main_reason_is_the_most_frequent(reasons, expected):
    """`higher_priority` and `not_due` count last, as they don't say what delays the rest."""
    assert expected == main_reason(reasons)
