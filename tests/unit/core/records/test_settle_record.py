"""The settle log's records survive encoding, and others than this release's are refused."""

import zlib

import msgspec
import pytest
from msgspec.structs import replace

from evenlane.engine.core.records.settle_record import VERSION, SettleRecord, UnknownVersion, decode, encode
from evenlane.engine.core.wire.varint_runs import pack_pairs, pack_runs
from tests.unit.core.records.settle_records import newer, record


def test_record_survives_encoding():
    one = record(runs=b"\x00\x01", checkpoint=True, high_at=1 << 62)
    assert one == decode(encode(one))


def test_long_runs_are_compressed_in_version_2():
    """K10: a million messages of which every other one is held for another subscription fit a record."""
    runs = pack_runs([(sequence, sequence) for sequence in range(2, 1_000_000, 2)], 0)
    one = record(version=2, runs=runs, hours=pack_pairs([(490_000, 7)], 0))
    assert one == decode(raw := encode(one))
    assert len(raw) < 10_000 < len(runs)
    assert replace(one, version=1, hours=b"") == decode(encode(one, 1))


@pytest.mark.parametrize("runs", [b"\x80\x00", b"\x80\x00abc", b"\x80\x00" + zlib.compress(b"1" * 9_000)[:-5],
                                  b"\x80\x00" + zlib.compress(bytes((1 << 26) + 1))],
                         ids=["empty", "no stream", "cut short", "too long"])  # fmt: skip
def test_malformed_compression_is_refused(runs):
    with pytest.raises(ValueError, match="not a settle record"):
        decode(msgspec.msgpack.encode(record(version=2, runs=runs)))


def test_reset_is_in_records_of_version_2_only():
    """K10: records of an environment without named subscriptions stay as they are. None loses its reset."""
    one = record(version=2, reset=1_790_000_000 * 10**9)
    assert one == decode(encode(one))
    assert one == decode(encode(one, 1))
    assert 13 == len(msgspec.msgpack.decode(encode(record())))


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
    values = (VERSION, 7, 3, "s", 9, 90, 4, b"\x00\x01", True, pack_pairs([(5, 4)], 4))
    assert old(*values[:known]) == msgspec.msgpack.Decoder(old).decode(
        encode(SettleRecord(*values, horizon=9, clean=True))
    )
