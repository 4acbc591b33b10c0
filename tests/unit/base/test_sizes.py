import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.numbers import format_number
from evenlane.engine.base.sizes import format_size, parse_size


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0"), (1_000, "1000"), (1_536, "1536"), (2**16, "64KiB"), (2**26, "64MiB"), (2**40, "1TiB")],
)
def test_size_is_written_in_its_largest_whole_unit(size, text):
    assert text == format_size(size)


@given(st.integers(0, 10**15 - 1))
def test_written_size_is_parsed_as_the_same(size):
    assert size == parse_size(format_size(size))


@pytest.mark.parametrize(
    ("number", "text"), [(1_000.0, "1000"), (0.9, "0.9"), (1e-5, "0.00001"), (1e9, "1000000000"), (0.0, "0"), (2, "2")]
)
def test_number_is_written_without_exponent(number, text):
    assert text == format_number(number)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_written_number_is_the_same(number):
    assert number == float(format_number(number))
