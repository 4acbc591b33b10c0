"""Strict priority and ageing against a sorted list (E5)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.priority.bands import Ageing, first
from tests.oracles.examples import examples
from tests.oracles.priority import AgeingLine, SortedLine

arrivals = st.lists(st.one_of(st.integers(0, 7), st.none()), max_size=80)  # a band, or a turn to take
shares = st.sampled_from([0.0, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0])  # these add up exactly


def mask_of(line):
    return sum(1 << band for band in line.bands())


@given(arrivals)
@examples(100)
def test_first_is_the_head_of_the_sorted_list(steps):
    line = SortedLine()
    for band in steps:
        if band is not None:
            line.put(band, object())
        elif line.waiting:
            assert line.choose() == first(mask_of(line))
            line.take()


@given(arrivals, shares)
@examples(200)
def test_ageing_matches_a_count_of_all_turns(steps, share):
    line, ageing = AgeingLine(share), Ageing(share)
    for band in steps:
        if band is not None:
            line.put(band, object())
        elif line.waiting:
            mask = mask_of(line)
            chosen = ageing.choose(mask)
            assert line.choose() == chosen
            ageing.note_taken(mask, chosen)
            line.take()


@given(st.floats(0, 1), st.lists(st.integers(1, 255), min_size=1, max_size=20))
@examples(100)
def test_lower_bands_get_their_exact_share(share, masks):
    """E5: the stated share of contested turns, within one turn, and never an empty band."""
    ageing, contested, lower = Ageing(share), 0, 0
    for n in range(2_000):
        mask = masks[n % len(masks)]
        band = ageing.choose(mask)
        assert mask >> band & 1
        ageing.note_taken(mask, band)
        if mask & (mask - 1):
            contested += 1
            lower += band != first(mask)
            assert abs(lower - share * contested) <= 1 + 1e-6


@pytest.mark.parametrize("share", [1 / 100, 1 / 16, 1 / 3, 0.5])
def test_lower_bands_take_turns(share):
    """E5: with ageing, the lower bands get the stated share within 10 %, half of it each."""
    ageing, got = Ageing(share), [0, 0, 0]
    for _ in range(30_000):
        band = ageing.choose(0b111)
        ageing.note_taken(0b111, band)
        got[band] += 1
    assert share == pytest.approx((got[1] + got[2]) / 30_000, rel=0.1)
    assert got[1] == pytest.approx(got[2], abs=1)


@given(st.floats(0, 1), st.lists(st.tuples(st.integers(1, 255), st.booleans()), max_size=60))
@examples(100)
def test_choose_changes_nothing_until_taken(share, turns):
    """E10."""
    ageing, straight = Ageing(share), Ageing(share)
    for mask, twice in turns:
        if twice:
            ageing.choose(mask)
        band = straight.choose(mask)
        assert band == ageing.choose(mask)
        ageing.note_taken(mask, band)
        straight.note_taken(mask, band)


def test_lone_band_accumulates_no_debt():
    ageing = Ageing(0.5)
    for _ in range(99):
        ageing.note_taken(0b100, ageing.choose(0b100))
    assert 0 == ageing.choose(0b101), "a band that waited alone has a debt"
