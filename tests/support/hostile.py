"""Bytes of foreign clients: nearly valid values, and nonsense."""

import json
from itertools import product

import msgspec
from hypothesis import strategies as st

from evenlane.engine.core.wire import headers as h

NUMBERS = ("0", "-1", "1", "007", "1.5", "1e400", "NaN", "Infinity", "-0", "1" + "0" * 400, "9" * 5_000, "9" * 18,
           "1700000000", "1700000000000", "1700000000000000", "1700000000000000000", "9223372036854775808",
           "٣", "²")  # fmt: skip
TEXTS = (
    "",
    " ",
    "\x00",
    "a\rb",
    "a\nb",
    "\x1b[2J",
    "\ufffd",
    "x" * 5_000,
    "ä",
    "404",
    "NATS/1.0 404",
    "Nats-Sequence: 7",
)
NAMES = (h.ID, h.KEY, h.DUE, h.EXPIRES, h.ATTEMPT, h.PUT, h.ORIGIN, h.RECORDED, h.REASON, h.ERROR, h.SUBJECT,
         "Nats-Sequence", "Nats-Time-Stamp", "Nats-Subject", "Nats-Stream", "Nats-Msg-Size", "Nats-Num-Pending",
         "Nats-Last-Sequence",
         "Nats-Expected-Stream", "Nats-Rollup", "Own", "", "\n", "a b", "evenlane-attempt")  # fmt: skip
FIRST_LINES = (
    b"NATS/1.0\r\n",
    b"NATS/1.0 404 No\r\n",
    b"NATS/1.0 503\r\n",
    b"NATS/1.0 100\r\n",
    b"",
    b"\r\n",
    b"HTTP/1.1\r\n",
)
ENDS = (b"\r\n", b"", b"\n", b"\r", b"\r\n\r\n")

_text = st.sampled_from([*NUMBERS, *TEXTS]) | st.text(max_size=20)
_value = (_text.map(lambda text: text.encode("utf-8", "replace"))) | st.binary(max_size=20)
lines = st.builds(lambda name, value: b"%b: %b\r\n" % (name.encode(), value), st.sampled_from(NAMES), _value)
blocks = st.builds(
    lambda first, lines, end: first + b"".join(lines) + end,
    st.sampled_from(FIRST_LINES), st.lists(lines, max_size=6), st.sampled_from(ENDS),
) | st.binary(max_size=80)  # fmt: skip
"""Blocks of headers."""

_plain = st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 64) - 1) | st.floats() | st.text(max_size=10)
_nested = st.recursive(
    _plain,
    lambda each: st.lists(each, max_size=6) | st.dictionaries(st.text(max_size=6), each, max_size=4),
    max_leaves=8,
)
ODD = (b"", b"\xff\xfe\x00", b"[" * 50_000, b'{"a":' * 50_000, b"\x91" * 50_000, b"\x81\xa1a" * 50_000, b"1e999",
       b'{"zz":[' + b"[" * 50_000, b"\x81\xa2zz" + b"\x91" * 50_000, b'{"id":"\xff","host":"\xff","by":"\xff"}',
       b"NaN", b'{"a": 1, "a": 2}', b'"\\ud800"', b"\xef\xbb\xbf{}",
       *(number.encode() for number in NUMBERS))  # fmt: skip
documents = (
    st.sampled_from(ODD)
    | st.binary(max_size=60)
    | _nested.map(msgspec.msgpack.encode)
    | _nested.map(lambda each: json.dumps(each).encode("utf-8", "replace"))
)
"""Values of JSON or msgpack, and of neither."""


def spoilt(*samples: bytes) -> st.SearchStrategy[bytes]:
    """Samples with foreign parts in them."""
    put_in = st.sampled_from([*(text.encode("utf-8", "replace") for text in (*NUMBERS, *TEXTS)), b"null", b"[]", b"{}"])
    where = st.floats(0, 1)

    def change(sample: bytes, begin: float, end: float, new: bytes) -> bytes:
        first, last = sorted((int(begin * len(sample)), int(end * len(sample))))
        return sample[:first] + new + sample[last:]

    changed = st.builds(change, st.sampled_from(samples), where, where, put_in | st.binary(max_size=3))
    return changed | st.builds(_field_replaced, st.sampled_from(samples), st.integers(0, 40), put_in)


def _field_replaced(sample: bytes, which: int, new: bytes) -> bytes:
    """The JSON object with one value replaced; any other sample unchanged."""
    try:
        read = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in json.loads(sample).items()}
    except (ValueError, AttributeError):
        return sample
    name = [*read][which % len(read)] if read else "a"
    return msgspec.json.encode({**read, name: msgspec.Raw(new)})


words = st.sampled_from(["acme", "0", "mid", *NUMBERS[:14], *TEXTS, "urgent", "_stray", "999999999", "-"]).map(
    lambda text: "".join(text.split()).replace(".", "")[:300].encode("utf-8", "replace")
) | st.binary(max_size=12).map(lambda raw: b"".join(raw.split()).replace(b".", b""))


def subjects(prefix: str, depth: int) -> st.SearchStrategy[bytes]:
    """Subjects with `depth` words after the prefix, as a stream may accept them."""
    return st.lists(words, min_size=depth, max_size=depth).map(lambda rest: b".".join([prefix.encode(), *rest]))


def every_header() -> list[bytes]:
    """A block of headers for each name with each odd value; some aren't valid."""
    lines = [f"{name}: {value}".encode("utf-8", "replace") for name, value in product(NAMES, (*NUMBERS, *TEXTS))]
    return [b"NATS/1.0\r\n%b\r\n\r\n" % line for line in lines]
