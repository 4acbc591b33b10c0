"""Sets of numbers as ranges, as log lines show partitions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.ranges import format_ranges


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((), ""),
        ((7,), "7"),
        ((1, 0), "0-1"),
        ((12, 3, 0, 9, 1, 10, 2, 11, 7), "0-3,7,9-12"),
    ],
)
def test_consecutive_numbers_are_one_range(numbers, text):
    assert text == format_ranges(numbers)


@given(st.sets(st.integers(0, 200)))
def test_ranges_name_exactly_the_numbers(numbers):
    named = set()
    for part in filter(None, format_ranges(numbers).split(",")):
        first, _, last = part.partition("-")
        named |= {*range(int(first), int(last or first) + 1)}
    assert numbers == named


def test_many_ranges_are_cut():
    assert "0,2 and 4 more" == format_ranges((0, 2, 4, 6, 7, 9), most=2)
    assert len("serving" + format_ranges(range(0, 65_536, 2))) < 4_000
