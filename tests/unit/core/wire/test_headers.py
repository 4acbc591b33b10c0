"""Header blocks: what is written is read again, and nobody sets what isn't theirs."""

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
def test_what_is_written_is_read_again(headers):
    h.check_user(headers)
    block = h.encode({h.ID: "acme:1", **headers, h.DUE: "17"})
    assert {h.ID: "acme:1", **headers, h.DUE: "17"} == h.decode(block)
    assert headers == h.decode_user(block)
    assert [*headers.values(), "acme:1", "17"] == [h.value(block, name) for name in [*headers, h.ID, h.DUE]]


def test_the_block_is_as_nats_wants_it():
    assert b"NATS/1.0\r\nA: 1\r\nB: \xc3\xa4\r\n\r\n" == h.encode({"A": "1", "B": "ä"})
    assert b"" == h.encode({})


def test_nothing_is_in_no_block():
    assert (None, 7, {}) == (h.value(b"", h.ID), h.number(b"", h.DUE, 7), h.decode_user(b""))


def test_a_name_is_found_only_as_a_whole():
    block = h.encode({"X-Nats-Msg-Id": "a", "Other": "Nats-Msg-Id: b"})
    assert None is h.value(block, h.ID)
    assert "a" == h.value(block, "X-Nats-Msg-Id")


@pytest.mark.parametrize(("text", "expected"), [("17", 17), ("0", 0), ("-1", 5), ("x", 5), ("", 5), ("1.5", 5)])
def test_what_is_no_number_counts_as_absent(text, expected):
    """Anyone may publish to a lane: a bad header must not stop it."""
    assert expected == h.number(h.encode({h.ATTEMPT: text}), h.ATTEMPT, 5)


@pytest.mark.parametrize("text", ["²", "९", "1" * 5_000])
def test_a_number_that_is_none_for_a_machine_counts_as_absent_too(text):
    assert 5 == h.number(h.encode({h.ATTEMPT: text}), h.ATTEMPT, 5)


@given(st.binary(max_size=80))
def test_no_bytes_of_a_stranger_raise_anything(rest):
    for block in (h.FIRST_LINE + rest, b"NATS/1.0\r\n" + rest + b"\r\n\r\n", rest):
        h.decode_user(block)
        h.decode(block)


@pytest.mark.parametrize("tail", [b"", b" 17", b" 17\r"])
def test_a_block_that_is_cut_off_raises_nothing(tail):
    block = h.FIRST_LINE + b"Nats-Msg-Id:" + tail
    assert h.value(block, h.ID) in {None, "17", ""}


@pytest.mark.parametrize("name", ["", "a b", "a:b", "ä", "a\r\nb", "x" * 129, None, 7])
def test_a_bad_header_name_is_refused(name):
    with pytest.raises(InvalidName, match="not a valid name"):
        h.check_user({name: "1"})


@pytest.mark.parametrize("name", ["Nats-Msg-Id", "nats-rollup", "Evenlane-Due", "EVENLANE-X"])
def test_a_reserved_header_is_refused(name):
    """A putting side could otherwise erase a stream by rollup, or forge a due time."""
    with pytest.raises(InvalidName, match="reserved"):
        h.check_user({name: "1"})


@pytest.mark.parametrize("text", ["a\r\nNats-Rollup: all", "a\nb", "\x00", "\x7f", None, 7, b"x"])
def test_a_value_that_is_no_single_line_of_text_is_refused(text):
    with pytest.raises(InvalidName, match="no single line of text"):
        h.check_user({"A": text})
