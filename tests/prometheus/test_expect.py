"""The proof itself can fail: what each kind of expectation finds wrong."""

import pytest

from tests.prometheus import expressions
from tests.prometheus.api import Series
from tests.prometheus.expect import NOTHING, Span, about, alerts, by, one

_CAME = [Series({"project": "hot"}, 50.0), Series({"project": "cold"}, 1.0)]


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (by("project", {"hot": about(50), "cold": about(1)}), ""),
        (by("project", {"hot": about(60, 0.1)}, others=about(1)), "hot was due: 54 to 66"),
        (by("project", {"hot": about(50)}), "cold was not due"),
        (by("project", {"hot": about(50)}, others=Span(2, 3)), "cold was due within 2 to 3"),
        (by("project", {"hot": about(50), "warm": about(1)}, others=about(1)), "warm was due: 0.85 to 1.15"),
        (by("project", {"hot|cold|warm": Span(51, 51)}), ""),
        (by("project", {}, others=Span(0, 99), most=1), "at most 1 series were due"),
        (one(about(50)), "one series was due, 42.5 to 57.5"),
        (NOTHING, "nothing was due"),
        (alerts({"project": "hot"}), "[('project', 'cold')] was not due"),
    ],
)
def test_what_is_wrong_is_said(check, wrong):
    assert wrong == check.wrong(_CAME)


def test_one_series_for_each_key():
    """Two of the same would be two lines of one name."""
    assert by("project", {"hot": about(50)}).wrong(_CAME[:1] * 2) == "one series for each project was due"


def test_ranges_are_as_long_as_the_load():
    assert expressions.short("rate(a[5m]) / rate(b[10s]) + max_over_time(c[1h:1m]) unless d offset 10m") == (
        "rate(a[10s]) / rate(b[10s]) + max_over_time(c[10s:1s]) unless d offset 10s"
    )


def test_a_variable_that_nobody_fills_in_is_told():
    assert expressions.filled_in("a[$__range] $__range_s", {"__range": "5s", "__range_s": "5"}) == "a[5s] 5"
    with pytest.raises(AssertionError, match="of which these tests know nothing"):
        expressions.filled_in("a{b='$c'}", {"d": "e"})
