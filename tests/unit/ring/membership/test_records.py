"""What stands under the coordination keys: read with care, since anyone can write it."""

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
SPOILT = [
    b"", b" ", b"null", b"[]", b"7", b'"a"', b"{", b"\xff\xfe", b"[" * 200_000, b'{"id":' * 100_000,
    b'{"generation": NaN}', b'{"generation": 1e400, "partitions": []}', b'{"generation": 1.5, "partitions": []}',
    b'{"generation": true, "partitions": []}', b'{"generation": "1", "partitions": []}', b'{"generation": null}',
]  # fmt: skip


# (these have no generation, and need no field: those that they don't know don't matter to them)
CASES = [
    (kind, raw) for kind in KINDS for raw in SPOILT if kind not in (NodeRecord, EpochRecord) or b"generation" not in raw
]


@pytest.mark.parametrize(("kind", "raw"), CASES, ids=[f"{kind.__name__}-{raw[:20]!r}" for kind, raw in CASES])
def test_what_is_no_record_is_told_with_its_key(kind, raw):
    """Issue 4: named in the log."""
    with pytest.raises(RecordError, match=r"^/evenlane/x/y "):
        decode(kind, "/evenlane/x/y", raw)


def test_what_is_too_large_is_not_even_read():
    with pytest.raises(RecordError, match=r"^k holds 1048577 bytes"):
        decode(PlanRecord, "k", b" " * (MOST_BYTES + 1))
    assert PlanRecord(generation=1, partitions=[]) == decode(
        PlanRecord, "k", b'{"generation":1,"partitions":[]}'.ljust(MOST_BYTES)
    )


def test_fields_that_a_newer_version_writes_are_passed_over():
    raw = b'{"generation": 1, "partitions": [2], "because": {"of": [1]}}'
    assert PlanRecord(generation=1, partitions=[2]) == decode(PlanRecord, "k", raw)


def test_a_node_is_fit_unless_it_says_otherwise():
    """P5."""
    assert NodeRecord().fit
    assert not NodeRecord(leaving=True).fit
    assert not NodeRecord(store=False).fit


def test_held_messages_run_if_any_of_them_does():
    done, runs = HeldLane(created="s", done=[1]), HeldLane(created="s", running=[2])
    assert not HeldRecord(id="a").running
    assert not HeldRecord(id="a", lanes={"lanes": done}).running
    assert HeldRecord(id="a", lanes={"lanes": done, "later": runs}).running


@pytest.mark.parametrize(
    "raw",
    [
        b'{"id": "a", "epoch": -1}',
        b'{"id": "a", "lanes": {"lanes": {"created": "s", "running": [-1]}}}',
        b'{"id": "a", "lanes": {"lanes": {"created": "s", "failed": [[1, -1]]}}}',
        b'{"id": "a", "lanes": {"lanes": {"created": "s", "failed": [[1, 18014398509481984]]}}}',
    ],
)
def test_numbers_that_the_settle_log_could_not_hold_are_told(raw):
    """X11: they go there."""
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
def test_what_is_written_is_read(record):
    raw = encode(record)
    assert record == decode(type(record), "k", raw)
    assert isinstance(json.loads(raw), dict), "any client can read it"


NAMES = ["id", "generation", "partitions", "lanes", "epoch", "created", "running", "store"]
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES), inner),
    max_leaves=6,
)


@given(st.sampled_from(KINDS), st.binary() | values.map(lambda value: json.dumps(value).encode()))
def test_nothing_but_record_error_comes_of_anything(kind, raw):
    try:
        read = decode(kind, "k", raw)
    except RecordError:
        return
    assert isinstance(read, kind)


def test_a_base_that_was_never_raised_is_told_as_docs_say():
    """F2: docs/how-to/upgrade.md finds by `"base":0` whether an older release may be run again."""
    lines = [encode(EpochRecord(base=base, before=[7])) for base in (0, 1, 10, 70)]
    assert lines[1:] == [line for line in lines if b'"base":0' not in line]
