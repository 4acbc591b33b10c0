"""Tests of the oracles of strict priority and ageing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracles.examples import examples
from tests.oracles.priority import AgeingLine, SortedLine


@given(st.lists(st.integers(0, 7), max_size=30))
@examples(100)
def test_items_come_sorted_by_band_and_arrival(bands):
    line = SortedLine()
    for n, band in enumerate(bands):
        line.put(band, (band, n))
    assert sorted((band, n) for n, band in enumerate(bands)) == [line.take() for _ in bands]


def test_late_high_item_is_next():
    """E5."""
    line = SortedLine()
    for n in range(5):
        line.put(2, f"low {n}")
    assert "low 0" == line.take()
    line.put(0, "high")
    assert ["high", "low 1"] == [line.take(), line.take()]


@pytest.mark.parametrize("share", [0.0, 0.01, 1 / 16, 0.3, 0.5, 1.0])
def test_ageing_gives_the_lower_bands_their_share(share):
    line = AgeingLine(share)
    for n in range(300):
        line.put(0, ("high", n))
        line.put(1, ("mid", n))
        line.put(2, ("low", n))
    taken = [line.take() for _ in range(300)]
    lower = [name for name, _ in taken if name != "high"]
    assert share * 300 == pytest.approx(len(lower), abs=1)
    assert ["mid", "low"] * (len(lower) // 2) == lower[: len(lower) // 2 * 2], "the lower ones take turns"
    for band in ("high", "mid", "low"):
        assert sorted(each for each in taken if each[0] == band) == [each for each in taken if each[0] == band]


def test_uncontested_turns_cost_no_share():
    line = AgeingLine(0.5)
    for n in range(9):
        line.put(2, n)
    assert list(range(9)) == [line.take() for _ in range(9)]
    assert (0, 0) == (line.contested, line.lower)
