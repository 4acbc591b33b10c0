"""The headers that Evenlane acts on: valid values, or the reason why they are invalid."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.wire import header_values
from evenlane.engine.core.wire import headers as h
from tests.support import hostile

NOW = 1_700_000_000_000_000_000


def block(**values):
    return h.encode({getattr(h, name): text for name, text in values.items()})


def refused(block):
    return [str(refusal) for refusal in header_values.refusals(block)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("1700000000", "it must be nanoseconds since 1970, and looks like seconds"),
        ("1700000000000", "it must be nanoseconds since 1970, and looks like milliseconds"),
        ("1700000000000000", "it must be nanoseconds since 1970, and looks like microseconds"),
        ("5", "it must be nanoseconds since 1970"),
        ("0", "it must be nanoseconds since 1970"),
        ("9223372036854775808", "it must be nanoseconds since 1970, and this is later than 2262"),
        ("1" + "0" * 30, "it must be nanoseconds since 1970, and this is later than 2262"),
        ("-1", "it must be a whole number of nanoseconds since 1970"),
        ("1.7e18", "it must be a whole number of nanoseconds since 1970"),
        ("2026-11-25T00:00:00Z", "it must be a whole number of nanoseconds since 1970"),
        ("", "it must be a whole number of nanoseconds since 1970"),
        ("٣", "it must be a whole number of nanoseconds since 1970"),
    ],
)
def test_invalid_time_is_refused_with_its_unit(text, reason):
    """F12: seconds or milliseconds, read as nanoseconds, would be long past."""
    headers = block(EXPIRES=text, DUE=str(NOW))
    assert [f"Evenlane-Expires {text!r} is not valid: {reason}"] == refused(headers)
    assert header_values.refusals(headers)[0].fatal
    assert (7, NOW) == (
        header_values.read_instant(headers, h.EXPIRES, 7),
        header_values.read_instant(headers, h.DUE, 7),
    )


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "", "x", "1000001", "1" + "0" * 400])
def test_invalid_attempt_counts_as_the_first(text):
    """F4: `Evenlane-Attempt: 0` must not end a node."""
    headers = block(ATTEMPT=text)
    [refusal] = header_values.refusals(headers)
    assert not refusal.fatal
    assert "it must be a number from 1 to 1000000" == refusal.reason
    assert 1 == header_values.attempt(headers)
    assert 3 == header_values.attempt(block(ATTEMPT="3"))


@pytest.mark.parametrize("text", ["", "a\nb", "\x00", "x" * 257])
def test_invalid_key_counts_as_absent(text):
    headers = b"NATS/1.0\r\nEvenlane-Key: %b\r\n\r\n" % text.encode()
    assert header_values.key(headers) is None
    assert [False] == [refusal.fatal for refusal in header_values.refusals(headers)]
    assert "Käse" == header_values.key(block(KEY="Käse"))


@pytest.mark.parametrize("text", ["acme:", "a\rb", "\t\x00", "x" * 257])
def test_invalid_id_counts_as_absent(text):
    assert header_values.own_id(b"NATS/1.0\r\nNats-Msg-Id: %b\r\n\r\n" % text.encode(), "acme") is None


def test_copy_has_the_id_of_its_message():
    copy = block(ID="acme:order:7:LANES_online_3:17:1", ORIGIN="LANES_online_3:17")
    assert "order:7" == header_values.own_id(copy, "acme")
    assert "order:7" == header_values.own_id(block(ID="acme:order:7"), "acme")


def test_valid_headers_are_not_refused():
    good = block(ID="acme:1", KEY="k", DUE=str(NOW), EXPIRES=str(NOW), PUT=str(NOW), ATTEMPT="2", RECORDED="1")
    assert [] == refused(good)


own_lines = hostile.lines.filter(lambda line: line.startswith(b"Evenlane-")) | st.sampled_from(
    [b"Evenlane-Due: %d\r\n" % NOW, b"Evenlane-Attempt: 2\r\n", b"Evenlane-Key: k\r\n", b"Evenlane-Origin: S:1\r\n"]
)


@given(st.lists(own_lines, max_size=4))
def test_fast_path_agrees_with_full_check(found):
    """An unknown header forces the full check of each header."""
    block = h.FIRST_LINE + b"".join(found)
    full_check = header_values.refusals(block + b"Evenlane-Unknown: 1\r\n\r\n")
    assert full_check == header_values.refusals(block + b"\r\n")


def test_fatal_refusals_come_first_and_long_values_are_shortened():
    refusals = header_values.refusals(block(ATTEMPT="0", EXPIRES="x" * 5_000))
    assert [("Evenlane-Expires", True), ("Evenlane-Attempt", False)] == [(each.header, each.fatal) for each in refusals]
    assert 80 == len(refusals[0].value)


def test_first_of_two_equal_headers_counts():
    twice = b"NATS/1.0\r\nEvenlane-Attempt: 3\r\nEvenlane-Attempt: 9\r\n\r\n"
    assert (3, "3") == (header_values.attempt(twice), h.decode(twice)[h.ATTEMPT])
