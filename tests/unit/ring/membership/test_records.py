"""The records under the coordination keys: strictly checked, since anyone can write them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.ring.membership.records import (
    MOST_BYTES,
    DoneRecord,
    EpochRecord,
    GenerationRecord,
    HeldLane,
    HeldRecord,
    LeaderRecord,
    NewerFormat,
    NodeRecord,
    OwnerRecord,
    PastOwner,
    PlanRecord,
    RecordError,
    decode,
    encode,
)

KINDS = [
    NodeRecord, LeaderRecord, PlanRecord, GenerationRecord, OwnerRecord, EpochRecord, DoneRecord, HeldLane, HeldRecord,
]  # fmt: skip
CORRUPT = [
    b"", b" ", b"null", b"[]", b"7", b'"a"', b"{", b"\xff\xfe", b"[" * 200_000, b'{"id":' * 100_000,
    b'{"generation": NaN}', b'{"generation": 1e400, "partitions": []}', b'{"generation": 1.5, "partitions": []}',
    b'{"generation": true, "partitions": []}', b'{"generation": "1", "partitions": []}', b'{"generation": null}',
]  # fmt: skip


# (node and epoch records have no generation and no required field, and ignore unknown ones)
CASES = [
    (kind, raw)
    for kind in KINDS
    for raw in CORRUPT
    if kind not in (NodeRecord, EpochRecord) or b"generation" not in raw
]


@pytest.mark.parametrize(("kind", "raw"), CASES, ids=[f"{kind.__name__}-{raw[:20]!r}" for kind, raw in CASES])
def test_corrupt_record_is_refused_with_its_key(kind, raw):
    """The log names the key."""
    with pytest.raises(RecordError, match=r"^/evenlane/x/y "):
        decode(kind, "/evenlane/x/y", raw)


def test_record_has_at_most_1_mib():
    with pytest.raises(RecordError, match=r"^k holds 1048577 bytes"):
        decode(PlanRecord, "k", b" " * (MOST_BYTES + 1))
    assert PlanRecord(generation=1, partitions=[]) == decode(
        PlanRecord, "k", b'{"generation":1,"partitions":[]}'.ljust(MOST_BYTES)
    )


def test_unknown_fields_are_ignored():
    """Rolling upgrade: a newer release may write more fields."""
    raw = b'{"generation": 1, "partitions": [2], "because": {"of": [1]}}'
    assert PlanRecord(generation=1, partitions=[2]) == decode(PlanRecord, "k", raw)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not HeldLane])
@pytest.mark.parametrize("more", [b"", b', "id": 7, "generation": "x", "base": -1, "host": []'])
def test_newer_format_is_named(kind, more):
    """U2: whatever else is in the record."""
    with pytest.raises(NewerFormat, match=r"^k has format 2, and this release reads only 1: run the"):
        decode(kind, "k", b'{"format": 2%b}' % more)


@pytest.mark.parametrize("raw", [b'{"format": 0}', b'{"format": "2"}', b'{"format": 2'])
def test_invalid_format_is_no_newer_one(raw):
    with pytest.raises(RecordError) as caught:
        decode(NodeRecord, "k", raw)
    assert not isinstance(caught.value, NewerFormat)


def test_record_without_a_format_has_format_1():
    """U1: releases before the field don't write it."""
    assert PlanRecord(generation=1, partitions=[2], format=1) == decode(
        PlanRecord, "k", b'{"generation": 1, "partitions": [2]}'
    )
    assert 1 == json.loads(encode(PlanRecord(generation=1, partitions=[2])))["format"]


def test_node_is_fit_unless_it_leaves_or_lacks_the_store():
    """P5."""
    assert NodeRecord().is_fit
    assert not NodeRecord(leaving=True).is_fit
    assert not NodeRecord(store=False).is_fit


def test_held_record_is_running_while_any_message_runs():
    done, runs = HeldLane(created="s", done=[1]), HeldLane(created="s", running=[2])
    assert not HeldRecord(id="a").is_running
    assert not HeldRecord(id="a", lanes={"lanes": done}).is_running
    assert HeldRecord(id="a", lanes={"lanes": done, "later": runs}).is_running


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id": "a", "epoch": -1}',
        b'{"id": "a", "lanes": {"lanes": {"created": "s", "running": [-1]}}}',
        b'{"id": "a", "lanes": {"lanes": {"created": "s", "failed": [[1, -1]]}}}',
        b'{"id": "a", "lanes": {"lanes": {"created": "s", "failed": [[1, 18014398509481984]]}}}',
    ],
)
def test_numbers_too_large_for_the_settle_log_are_refused(raw):
    """X11: they are written to it."""
    with pytest.raises(RecordError, match=r"^k "):
        decode(HeldRecord, "k", raw)


numbers = st.lists(st.integers(1, 1 << 50), max_size=4)
lanes = st.builds(
    HeldLane, created=st.text(max_size=9), high=st.integers(0, 1 << 50), high_at=st.integers(0, 1 << 62),
    running=numbers, done=numbers,
)  # fmt: skip
records = st.one_of(
    st.builds(PlanRecord, generation=st.integers(0, 1 << 62), partitions=numbers),
    st.builds(NodeRecord, host=st.text(), cpu=st.floats(0, 9), store=st.booleans(), leaving=st.booleans()),
    st.builds(OwnerRecord, id=st.text(), epoch=st.integers(0, 1 << 62), base=st.integers(0, (1 << 53) - 1)),
    st.builds(
        EpochRecord,
        base=st.integers(0, (1 << 53) - 1),
        lease=st.integers(0, 1 << 62),
        before=st.lists(st.builds(PastOwner, st.integers(0, 1 << 62), st.integers(0, 1 << 62)), max_size=8),
    ),
    st.builds(HeldRecord, id=st.text(), lanes=st.dictionaries(st.sampled_from(["lanes", "later"]), lanes)),
)


@given(records)
def test_record_survives_encoding(record):
    raw = encode(record)
    assert record == decode(type(record), "k", raw)
    assert isinstance(json.loads(raw), dict), "other clients must be able to read it"


def test_unraised_base_is_written_as_zero():
    """F2: docs/how-to/upgrade.md searches for `"base":0` before an older release is run again."""
    lines = [encode(EpochRecord(base=base, before=[7])) for base in (0, 1, 10, 70)]
    assert lines[1:] == [line for line in lines if b'"base":0' not in line]
