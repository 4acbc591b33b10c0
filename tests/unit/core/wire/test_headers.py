"""Header blocks: reading, writing, and refusal of reserved names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import InvalidName

header_names = st.text("abcXYZ019-_!#$%&'*+.^`|~", min_size=1, max_size=20).filter(
    lambda name: not name.lower().startswith(("nats-", "evenlane-"))
)
values = st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=30).map(str.strip)
user_headers = st.dictionaries(header_names, values, max_size=5)


@given(user_headers)
def test_headers_survive_encoding(headers):
    h.check_user(headers)
    block = h.encode({h.ID: "acme:1", **headers, h.DUE: "17"})
    assert {h.ID: "acme:1", **headers, h.DUE: "17"} == h.decode(block)
    assert headers == h.decode_user(block)
    assert [*headers.values(), "acme:1", "17"] == [h.value(block, name) for name in [*headers, h.ID, h.DUE]]


def test_block_has_the_format_of_nats():
    assert b"NATS/1.0\r\nA: 1\r\nB: \xc3\xa4\r\n\r\n" == h.encode({"A": "1", "B": "ä"})
    assert b"" == h.encode({})


def test_empty_block_has_no_headers():
    assert (None, 7, {}) == (h.value(b"", h.ID), h.number(b"", h.DUE, 7), h.decode_user(b""))


def test_only_a_complete_name_is_found():
    block = h.encode({"X-Nats-Msg-Id": "a", "Other": "Nats-Msg-Id: b"})
    assert None is h.value(block, h.ID)
    assert "a" == h.value(block, "X-Nats-Msg-Id")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("17", 17), ("0", 0), ("-1", 5), ("x", 5), ("", 5), ("1.5", 5),
        ("²", 5), ("९", 5), pytest.param("1" * 5_000, 5, id="5,000 digits"),
    ],
)  # fmt: skip
def test_invalid_number_counts_as_absent(text, expected):
    """F4: anyone may publish to a lane, and an invalid header must not stop it."""
    assert expected == h.number(h.encode({h.ATTEMPT: text}), h.ATTEMPT, 5)


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\r\nb", "x" * 129, None, 7])
def test_invalid_header_name_is_refused(name):
    with pytest.raises(InvalidName, match="not a valid name"):
        h.check_user({name: "1"})


@pytest.mark.parametrize("name", ["Nats-Msg-Id", "nats-rollup", "Evenlane-Due", "EVENLANE-X"])
def test_reserved_header_is_refused(name):
    """F4: a producer could otherwise erase a stream by a rollup, or forge a due time."""
    with pytest.raises(InvalidName, match="reserved"):
        h.check_user({name: "1"})


@pytest.mark.parametrize("text", ["a\r\nNats-Rollup: all", "a\nb", "\x00", "\x7f", None, 7, b"x"])
def test_header_value_must_be_a_single_line_of_text(text):
    with pytest.raises(InvalidName, match="not a single line of text"):
        h.check_user({"A": text})


def test_copies_carry_no_headers_that_instruct_the_server():
    """F4: with `Nats-Expected-Stream` the server would refuse each copy."""
    found = {"Nats-Expected-Stream": "LANES_online_3", "Own": "a\r\nb", "a b": "c", "Evenlane-Later": "1"}
    assert {"Own": "a  b", "Evenlane-Later": "1"} == h.select_carried(found)
