"""The settle log's records survive encoding, and others than this release's are refused."""

import msgspec
import pytest

from evenlane.engine.core.records.settle_record import VERSION, SettleRecord, UnknownVersion, decode, encode
from evenlane.engine.core.wire.varint_runs import pack_marks
from tests.unit.core.records.settle_records import newer, record


def test_record_survives_encoding():
    one = record(runs=b"\x00\x01", checkpoint=True, high_at=1 << 62)
    assert one == decode(encode(one))


@pytest.mark.parametrize("raw", [encode(record(version=3)), newer(), newer(9, 1_000, {"runs": [[1, 2]]}, 3.5)])
def test_record_of_newer_version_is_refused_with_its_number(raw):
    """F4: the error says which release can read it."""
    with pytest.raises(UnknownVersion, match=r"version (3|1000), and this release knows versions up to 2: run"):
        decode(raw)


@pytest.mark.parametrize("raw", [newer(version=0), newer(version=-1), newer(version="2"), newer(epoch="x"),
                                 newer(epoch=1 << 53), b"\x91\x02", b"\x92\x02\x09", b"\x81\xa1v\x02", b"", b"\xc1",
                                 b"not msgpack", msgspec.msgpack.encode([1, 2]), encode(record())[:-3]])  # fmt: skip
def test_malformed_record_is_refused(raw):
    """F4: every release's records begin with version, epoch and number."""
    with pytest.raises(ValueError, match="not a settle record"):
        decode(raw)


FIELDS = [
    ("version", int), ("epoch", int), ("number", int), ("created", str), ("high", int), ("high_at", int),
    ("watermark", int), ("runs", bytes), ("checkpoint", bool), ("marks", bytes),
]  # fmt: skip


@pytest.mark.parametrize("known", [9, 10], ids=["without marks", "without horizon"])
def test_older_release_ignores_later_fields(known):
    """Rolling upgrade, and rollback: an older release reads this release's records."""
    old = msgspec.defstruct("Old", FIELDS[:known], array_like=True, frozen=True)
    values = (VERSION, 7, 3, "s", 9, 90, 4, b"\x00\x01", True, pack_marks([(5, 4)], 4))
    assert old(*values[:known]) == msgspec.msgpack.Decoder(old).decode(
        encode(SettleRecord(*values, horizon=9, clean=True))
    )
