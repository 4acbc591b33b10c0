"""Each kind of expectation can fail."""

import pytest

from tests.prometheus import expressions
from tests.prometheus.api import Series
from tests.prometheus.expect import NOTHING, Span, about, alerts, by, one

_CAME = [Series({"project": "hot"}, 50.0), Series({"project": "cold"}, 1.0)]


@pytest.mark.parametrize(
    ("check", "wrong"),
    [
        (by("project", {"hot": about(50), "cold": about(1)}), ""),
        (by("project", {"hot": about(60, 0.1)}, others=about(1)), "hot was expected: 54 to 66"),
        (by("project", {"hot": about(50)}), "cold was not expected"),
        (by("project", {"hot": about(50)}, others=Span(2, 3)), "cold was expected within 2 to 3"),
        (by("project", {"hot": about(50), "warm": about(1)}, others=about(1)), "warm was expected: 0.85 to 1.15"),
        (by("project", {"hot|cold|warm": Span(51, 51)}), ""),
        (by("project", {}, others=Span(0, 99), most=1), "at most 1 series were expected"),
        (one(about(50)), "one series was expected, 42.5 to 57.5"),
        (NOTHING, "nothing was expected"),
        (alerts({"project": "hot"}), "[('project', 'cold')] was not expected"),
    ],
)
def test_unexpected_series_are_described(check, wrong):
    assert wrong == check.wrong(_CAME)


def test_duplicate_series_are_described():
    """They would be two lines with the same name."""
    assert by("project", {"hot": about(50)}).wrong(_CAME[:1] * 2) == "one series for each project was expected"


def test_ranges_are_shortened_to_the_window():
    assert expressions.short("rate(a[5m]) / rate(b[10s]) + max_over_time(c[1h:1m]) unless d offset 10m") == (
        "rate(a[10s]) / rate(b[10s]) + max_over_time(c[10s:1s]) unless d offset 10s"
    )


def test_unknown_variable_is_an_error():
    assert expressions.filled_in("a[$__range] $__range_s", {"__range": "5s", "__range_s": "5"}) == "a[5s] 5"
    with pytest.raises(AssertionError, match="an unknown variable"):
        expressions.filled_in("a{b='$c'}", {"d": "e"})
