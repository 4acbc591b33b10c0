"""The in-flight record survives encoding, and anything else is refused."""

import msgspec
import pytest

from evenlane.engine.core.records import in_flight_record
from evenlane.engine.core.records.in_flight_record import decode, encode


def test_record_survives_encoding():
    """X11: it names the lanes with their epochs, and counts at least two messages."""
    parts = [("lanes", 1, 7, [5, (1 << 63) - 1]), ("later", 3, 8, [])]
    read = decode(encode(("lanes", 1, 5), parts))
    assert (2, ("lanes", 1, 5), parts) == (read.count, read.suspect, read.parts)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"not a record",
        msgspec.msgpack.encode([in_flight_record.VERSION + 1, 1, None, [["lanes", 1, 7, [1]]]]),  # a later version
        msgspec.msgpack.encode([1, 1, None, [["lanes", 1, 7, b"\x00"]]]),
        msgspec.msgpack.encode([1, 1, None, [["lanes", 1, "x", [1]]]]),
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode([1, 2, None, [["lanes", 1, 7, [1, 0]]]]),  # the server refuses this sequence
        msgspec.msgpack.encode([1, 2, None, [["lanes", 1, 7, [1, 1 << 63]]]]),
    ],
)
def test_anything_else_is_refused(raw):
    """F4."""
    assert decode(raw) is None
