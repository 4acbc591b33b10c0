"""The settle log's records: packed and unpacked, folded, refused when they are corrupt."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.lane import settle_record
from evenlane.engine.core.lane.settle_record import (
    VERSION,
    Record,
    UnknownVersion,
    decode,
    encode,
    fold,
    pack,
    pack_marks,
    unpack,
    unpack_marks,
)
from evenlane.engine.core.lane.settled_set import runs
from evenlane.engine.errors import ConfigError

bases = st.one_of(st.integers(0, 50), st.integers(0, 1 << 40))
gaps = st.lists(st.tuples(st.integers(1, 1 << 20), st.integers(0, 1 << 20)), max_size=30)


def spans_of(base: int, gaps) -> list[tuple[int, int]]:
    spans = []
    for gap, extra in gaps:
        first = base + gap + 1  # at least one apart, or it would be one run
        base = first + extra
        spans.append((first, base))
    return spans


@given(bases, gaps)
def test_runs_survive_packing(base, gaps):
    spans = spans_of(base, gaps)
    assert spans == unpack(pack(spans, base), base)


@given(bases, st.sets(st.integers(1, 2_000)))
def test_sequences_survive_packing(base, offsets):
    rising = sorted(base + offset for offset in offsets)
    unpacked = unpack(pack(runs(rising), base), base)
    assert rising == [s for first, last in unpacked for s in range(first, last + 1)]


def test_a_run_costs_a_few_bytes():
    """A settled message above a pinned watermark costs 2 bytes; a run of any length hardly more."""
    assert 2 == len(pack([(5, 5)], 0))
    assert 4 == len(pack([(5, 1_000_000)], 0))
    assert 2_000 == len(pack(runs(range(2, 2_002, 2)), 0))


@given(bases, gaps, st.integers(1, 3))
def test_runs_cut_short_are_told(base, gaps, cut):
    packed = pack(spans_of(base, gaps), base)
    try:
        spans = unpack(packed[:-cut], base)
    except ValueError:
        return
    assert spans == spans_of(base, gaps)[: len(spans)]


@pytest.mark.parametrize("bad", [b"\x01", b"\x80", b"\x01\x80", b"\x01\x02\x03"])
def test_half_a_run_is_no_run(bad):
    with pytest.raises(ValueError, match="cut short"):
        unpack(bad, 0)


def record(**fields) -> Record:
    values = {
        "version": VERSION, "epoch": 7, "number": 1, "created": "s", "high": 9, "high_at": 90, "watermark": 0,
        "runs": b"", "checkpoint": False,
    }  # fmt: skip
    return Record(**(values | fields))


def test_a_record_survives_the_wire():
    one = record(runs=b"\x00\x01", checkpoint=True, high_at=1 << 62)
    assert one == decode(encode(one))


def newer(epoch=9, version=2, *rest) -> bytes:
    """A record of another release: of all that it says only the beginning is known."""
    return msgspec.msgpack.encode([version, epoch, 1, *rest])


@pytest.mark.parametrize("raw", [encode(record(version=2)), newer(), newer(9, 1_000, {"runs": [[1, 2]]}, 3.5)])
def test_a_record_of_another_version_is_refused_with_its_number(raw):
    """L, F4: a node that is older than its predecessor must not guess, whatever else has changed."""
    for read in (decode, lambda raw: fold([raw])):
        with pytest.raises(UnknownVersion, match=r"version (2|1000), and this release knows only 1: run the release"):
            read(raw)


@pytest.mark.parametrize("raw", [newer(version=0), newer(version=-1), newer(version="2"), newer(epoch="x"),
                                 newer(epoch=1 << 53), b"\x91\x02", b"\x92\x02\x09", b"\x81\xa1v\x02"])  # fmt: skip
def test_what_no_release_writes_is_no_record(raw):
    """F4: all begin with version, epoch and number."""
    with pytest.raises(ValueError, match="not a settle record"):
        decode(raw)
    assert 1 == fold([raw]).unreadable


class TestUnknownVersions:
    """L, O: under an epoch that may be a newer owner's nothing is guessed; else no node can have written it."""

    LOG = (encode(record(number=1, epoch=7, runs=pack([(5, 6)], 0), checkpoint=True)),)

    @pytest.mark.parametrize(("epoch", "own"), [(7, 0), (8, 0), (9, 8), (8, 7)])
    def test_one_that_a_newer_owner_may_have_written_is_refused(self, epoch, own):
        with pytest.raises(UnknownVersion) as reported:
            fold([*self.LOG, newer(epoch)], own)
        assert (1, epoch) == (reported.value.index, reported.value.record.epoch)

    @pytest.mark.parametrize(("epoch", "own"), [(6, 0), (0, 0), (7, 7), (8, 8), (3, 9)])
    def test_others_are_passed_over(self, epoch, own):
        """`own`: the epoch of whoever asks, who has written no such record."""
        state = fold([*self.LOG, newer(epoch), encode(record(number=2, runs=pack([(8, 8)], 0)))], own)
        assert (1, 2, [(5, 6), (8, 8)]) == (state.unreadable, state.number, list(state.settled.above()))


@pytest.mark.parametrize("bad", [b"", b"\xc1", b"not msgpack", msgspec.msgpack.encode([1, 2]), encode(record())[:-3]])
def test_what_is_no_record_is_a_value_error(bad):
    with pytest.raises(ValueError, match="not a settle record"):
        decode(bad)


@pytest.mark.parametrize("bad", [b"", b"not msgpack", encode(record(runs=b"\x80"))])
def test_fold_passes_over_what_it_cannot_read(bad):
    """E11: one wrong record must not stop a partition: the others still count."""
    good = [encode(record(number=1, runs=pack([(5, 6)], 0))), bad, encode(record(number=2, runs=pack([(8, 8)], 0)))]
    state = fold(good)
    assert (1, 2) == (state.unreadable, state.number)
    assert [(5, 6), (8, 8)] == list(state.settled.above())


@given(st.binary(max_size=60))
def test_no_bytes_raise_anything_else(raw):
    with contextlib.suppress(ConfigError):
        fold([raw])


def test_a_record_with_corrupt_runs_is_a_value_error():
    with pytest.raises(ValueError, match="cut short"):
        unpack(b"\x80", 0)


appends = st.lists(
    st.tuples(st.sampled_from(["append", "append", "append", "checkpoint", "replaced"]), st.sets(st.integers(1, 60))),
    max_size=12,
)


@given(appends)
def test_fold_against_plain_sets(steps):
    """Each record names its news, a checkpoint everything; a stream made anew voids what stood before."""
    members, made, raws = set(), 0, []
    for number, (kind, new_runs) in enumerate(steps, 1):
        if kind == "replaced":
            made += 1
            members = set()
        watermark = 0
        while watermark + 1 in members:
            watermark += 1
        members |= new_runs
        named = members if kind == "checkpoint" else new_runs
        packed = pack(runs(sorted(s for s in named if s > watermark)), watermark)
        one = record(
            number=number, created=f"s{made}", high=number, high_at=number * 10, watermark=watermark, runs=packed,
            checkpoint=kind == "checkpoint",
        )  # fmt: skip
        raws.append(encode(one))
    state = fold(raws)
    assert members == {s for s in range(1, 62) if s in state.settled}
    if steps:
        assert (7, len(steps), f"s{made}") == (state.epoch, state.number, state.created)
        assert (len(steps), len(steps) * 10) == (state.high, state.high_at)


@pytest.mark.parametrize("runs", [[(7, 2**60)], [(7, 2**31), (2**31 + 2, 2**33)]])
def test_runs_that_no_stream_has_are_passed_over(runs):
    """F4: a node that laid out a map for them would never come back, and the next one neither."""
    good = Record(VERSION, 7, 1, "s", 20, 5, 3, pack([(5, 6)], 3))
    log = fold([encode(good), encode(msgspec.structs.replace(good, number=2, runs=pack(runs, 3)))])
    assert (1, 1, [(5, 6)]) == (log.number, log.unreadable, [*log.settled.above()])


def test_a_number_without_an_end_is_none():
    """F4: it would cost the square of its length."""
    with pytest.raises(ValueError, match="no end"):
        unpack(b"\xff" * (1 << 20), 0)
    mark = (1 << 117) - 1
    assert [(1, mark)] == unpack_marks(pack_marks([(1, mark)], 0), 0)


def test_many_records_together_name_no_more_than_one_may():
    half = Record(VERSION, 7, 1, "s", 2**40, 5, 0, pack([(2, 2**30)], 0), True)
    log = fold([encode(msgspec.structs.replace(half, number=number)) for number in range(1, 200)])
    assert (4, 195) == (log.number, log.unreadable)


def test_an_empty_log_knows_nothing():
    state = fold([])
    assert (0, 0, "", 0, 0) == (state.epoch, state.number, state.created, state.high, state.settled.watermark)
    assert state == settle_record.LogState(settled=state.settled)


# ---- marks of single messages

marks = st.dictionaries(st.integers(1, 2_000), st.integers(0, (1 << 14) | (4_102_444_800 << 14)))


@given(bases, marks)
def test_marks_survive_packing(base, marks):
    """K2, X11: attempts, suspicion, and when the next attempt is due."""
    rising = sorted((base + sequence, mark) for sequence, mark in marks.items())
    assert rising == unpack_marks(pack_marks(rising, base), base)


def test_a_mark_costs_a_few_bytes():
    """M: a sequence and its attempts 2 or 3 bytes; with the time of the next one 8."""
    assert 2 == len(pack_marks([(5, 3 << 2)], 0))
    assert 8 == len(pack_marks([(5, 3 << 2 | 1_800_000_000 << 14)], 0))


@pytest.mark.parametrize("bad", [b"\x01", b"\x80", b"\x01\x80", b"\x01\x02\x03"])
def test_half_a_mark_is_no_mark(bad):
    with pytest.raises(ValueError, match="cut short"):
        unpack_marks(bad, 0)


mark_steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "checkpoint", "replaced", "corrupt"]),
        st.dictionaries(st.integers(1, 20), st.integers(0, 9)),
        st.sets(st.integers(1, 20)),
    ),
    max_size=12,
)


@given(mark_steps)
def test_fold_of_marks_against_a_plain_dict(steps):
    """D: the last word on each message counts; 0 is none, a checkpoint repeats all, what is settled has none, a record
    that can't be read says nothing, a stream made anew voids what stood before.
    """
    known, settled, made, raws = {}, set(), 0, []
    for number, (kind, marked, new_runs) in enumerate(steps, 1):
        if kind == "corrupt":
            raws.append(encode(record(number=number, created=f"s{made}", marks=b"\x80")))
            continue
        made += kind == "replaced"
        if kind in {"checkpoint", "replaced"}:
            known, settled = {}, set()
        known |= marked
        settled |= new_runs
        raws.append(
            encode(
                record(
                    number=number, created=f"s{made}", checkpoint=kind == "checkpoint",
                    runs=pack(runs(sorted(new_runs)), 0), marks=pack_marks(sorted(marked.items()), 0),
                )
            )
        )  # fmt: skip
    state = fold(raws)
    assert {s: mark for s, mark in known.items() if mark and s not in settled} == state.marks
    assert sum(kind == "corrupt" for kind, *_ in steps) == state.unreadable


def test_a_record_of_before_there_were_marks():
    """An older node's: it has one field less."""
    old = msgspec.msgpack.encode([VERSION, 7, 3, "s", 9, 90, 4, pack([(6, 6)], 4), False])
    state = fold([old])
    assert ({}, 0, 3) == (state.marks, state.unreadable, state.number)
    assert [(6, 6)] == list(state.settled.above())


def test_an_older_node_reads_a_record_with_marks():
    """It passes over what it doesn't know: the last field."""

    class Old(msgspec.Struct, array_like=True, frozen=True):
        version: int
        epoch: int
        number: int
        created: str
        high: int
        high_at: int
        watermark: int
        runs: bytes
        checkpoint: bool = False

    assert 1 == msgspec.msgpack.Decoder(Old).decode(encode(record(marks=pack_marks([(1, 4)], 0)))).number
