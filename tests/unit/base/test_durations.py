"""Durations and instants as people write them."""

import contextlib
import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.durations import MAX_SECONDS, format_duration, parse_duration, parse_instant
from evenlane.engine.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5.0),
        ("10m", 600.0),
        ("2h", 7_200.0),
        ("3d", 259_200.0),
        ("1.5h", 5_400.0),
        (" 5 s ", 5.0),
        ("0", 0.0),
        ("0.25", 0.25),
        (7, 7.0),
        (0.1, 0.1),
    ],
)
def test_duration_is_parsed_in_seconds(text, seconds):
    assert seconds == parse_duration(text)


@pytest.mark.parametrize(
    "wrong", ["", "s", "5x", "5 parsecs", "1h30m", "1e3", "1_000", "\u0665s", "nan", "inf", True, None, []]
)
def test_invalid_duration_is_refused_with_the_valid_forms(wrong):
    with pytest.raises(ConfigError, match=r"is not a duration: write 500ms, 5s, 10m, 2h or 3d"):
        parse_duration(wrong)


@pytest.mark.parametrize(
    "wrong", ["-1s", -1, -0.001, "36501d", "9" * 400, 10**400, 1e300, math.inf, -math.inf, math.nan]
)
def test_duration_must_be_finite_and_not_negative(wrong):
    with pytest.raises(ConfigError, match="is not a duration between 0 and 36500d"):
        parse_duration(wrong)


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text):
    with contextlib.suppress(ConfigError):
        assert 0 <= parse_duration(text) <= MAX_SECONDS


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-31T08:00:00Z", 1_769_846_400_000_000_000),
        ("2026-01-31t08:00:00z", 1_769_846_400_000_000_000),
        ("2026-01-31 09:00:00+01:00", 1_769_846_400_000_000_000),
        ("2026-01-31T02:30:00-05:30", 1_769_846_400_000_000_000),
        ("2026-01-31T08:00:00.5Z", 1_769_846_400_500_000_000),
        ("2026-01-31T08:00:00.123456789Z", 1_769_846_400_123_456_789),
        ("2261-12-31T23:59:59.999999999Z", 9_214_646_399_999_999_999),
    ],
)
def test_instant_is_parsed_in_exact_unix_nanoseconds(text, ns):
    assert ns == parse_instant(text)


@pytest.mark.parametrize(
    "wrong", ["", "tomorrow", "2026-01-31", "2026-01-31T08:00:00", "2026-01-31T08:00Z", "1769846400", None]
)
def test_time_without_offset_or_in_another_form_is_refused(wrong):
    with pytest.raises(ConfigError, match="is not an RFC 3339 time: write 2026-01-31T08:00:00Z"):
        parse_instant(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        "2026-02-30T08:00:00Z",
        "2026-01-31T25:00:00Z",
        "2026-01-31T08:00:00+99:00",
        "0001-01-01T00:00:00+01:00",
    ],
)
def test_impossible_time_is_refused(wrong):
    with pytest.raises(ConfigError, match="is not a time that exists"):
        parse_instant(wrong)


@pytest.mark.parametrize("wrong", ["1969-12-31T23:59:59Z", "1970-01-01T00:00:00+00:01", "2262-01-01T00:00:00Z"])
def test_time_outside_the_range_of_a_header_is_refused(wrong):
    with pytest.raises(ConfigError, match="is not a time between 1970 and 2261"):
        parse_instant(wrong)


@given(st.datetimes(datetime(1970, 1, 1), datetime(2261, 12, 31)).map(lambda each: each.replace(tzinfo=UTC)))  # noqa: DTZ001
def test_instant_survives_iso_format(moment):
    expected = int(moment.replace(microsecond=0).timestamp()) * 10**9 + moment.microsecond * 1_000
    assert expected == parse_instant(moment.isoformat())


@pytest.mark.parametrize(
    ("seconds", "text"), [(86_400 * 30, "30d"), (129_600, "36h"), (90, "90s"), (120, "2m"), (0.25, "0.25s"), (0, "0s")]
)
def test_duration_is_written_in_its_largest_whole_unit(seconds, text):
    assert text == format_duration(seconds)


@given(st.integers(0, 36_500 * 86_400))
def test_written_duration_is_parsed_as_the_same(seconds):
    assert seconds == parse_duration(format_duration(seconds))
