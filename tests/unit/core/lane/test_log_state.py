"""Folding of the settle log's records, and refusal of those that can't be read."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.lane.log_state import LogState, fold
from evenlane.engine.core.lane.settled_set import runs
from evenlane.engine.core.records.settle_record import VERSION, SettleRecord, UnknownVersion, encode
from evenlane.engine.core.wire.varint_runs import pack_pairs, pack_runs
from tests.unit.core.records.settle_records import newer, record


@pytest.mark.parametrize("raw", [encode(record(version=3)), newer(), newer(9, 1_000, {"runs": [[1, 2]]}, 3.5)])
def test_record_of_newer_version_is_refused_with_its_number(raw):
    """L, F4: a node must not guess at records of a newer release."""
    with pytest.raises(UnknownVersion, match=r"version (3|1000), and this release knows versions up to 2: run"):
        fold([raw])


@pytest.mark.parametrize("raw", [newer(version=0), b"", b"not msgpack", encode(record())[:-3]])
def test_malformed_record_is_counted(raw):
    """F4: the records before and after it still count."""
    state = fold([encode(record(number=1)), raw, encode(record(number=2))])
    assert (1, 2) == (state.unreadable, state.number)


class TestUnknownVersions:
    """L, O: a record of an unknown version is skipped only if its epoch can't be a newer owner's."""

    LOG = (encode(record(number=1, epoch=7, runs=pack_runs([(5, 6)], 0), checkpoint=True)),)

    @pytest.mark.parametrize(("epoch", "own"), [(7, 0), (8, 0), (9, 8), (8, 7)])
    def test_record_of_a_possible_newer_owner_is_refused(self, epoch, own):
        with pytest.raises(UnknownVersion) as refused:
            fold([*self.LOG, newer(epoch)], own)
        assert (1, epoch) == (refused.value.index, refused.value.record.epoch)

    @pytest.mark.parametrize(("epoch", "own"), [(6, 0), (0, 0), (7, 7), (8, 8), (3, 9)])
    def test_record_that_no_owner_can_have_written_is_skipped(self, epoch, own):
        """`own`: the epoch of the reading node, which has written no such record."""
        state = fold([*self.LOG, newer(epoch), encode(record(number=2, runs=pack_runs([(8, 8)], 0)))], own)
        assert (1, 2, [(5, 6), (8, 8)]) == (state.unreadable, state.number, list(state.settled.above()))


@pytest.mark.parametrize("bad", [b"", b"not msgpack", encode(record(runs=b"\x80"))])
def test_fold_skips_unreadable_records(bad):
    """E11: one corrupt record must not stop a partition; the others still count."""
    good = [
        encode(record(number=1, runs=pack_runs([(5, 6)], 0))),
        bad,
        encode(record(number=2, runs=pack_runs([(8, 8)], 0))),
    ]
    state = fold(good)
    assert (1, 2) == (state.unreadable, state.number)
    assert [(5, 6), (8, 8)] == list(state.settled.above())


appends = st.lists(
    st.tuples(st.sampled_from(["append", "append", "append", "checkpoint", "replaced"]), st.sets(st.integers(1, 60))),
    max_size=12,
)


@given(appends)
def test_fold_matches_plain_sets(steps):
    """D: a record has its new runs, a checkpoint all runs; records of a replaced stream are ignored."""
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
        packed = pack_runs(runs(sorted(s for s in named if s > watermark)), watermark)
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
def test_record_with_impossibly_large_runs_is_skipped(runs):
    """F4: a node that expanded them would run out of memory, and so would the next owner."""
    good = SettleRecord(VERSION, 7, 1, "s", 20, 5, 3, pack_runs([(5, 6)], 3))
    log = fold([encode(good), encode(msgspec.structs.replace(good, number=2, runs=pack_runs(runs, 3)))])
    assert (1, 1, [(5, 6)]) == (log.number, log.unreadable, [*log.settled.above()])


def test_runs_of_all_records_together_are_bounded():
    """F4: many large records together may have no more runs than one record."""
    half = SettleRecord(VERSION, 7, 1, "s", 2**40, 5, 0, pack_runs([(2, 2**30)], 0), True)
    log = fold([encode(msgspec.structs.replace(half, number=number)) for number in range(1, 200)])
    assert (4, 195) == (log.number, log.unreadable)


def test_empty_log_folds_to_the_initial_state():
    state = fold([])
    assert (0, 0, "", 0, 0) == (state.epoch, state.number, state.created, state.high, state.settled.watermark)
    assert state == LogState(settled=state.settled)


mark_steps = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "checkpoint", "replaced", "corrupt"]),
        st.dictionaries(st.integers(1, 20), st.integers(0, 9)),
        st.sets(st.integers(1, 20)),
    ),
    max_size=12,
)


@given(mark_steps)
def test_fold_of_marks_matches_a_plain_dict(steps):
    """D: the last mark of each message counts. 0 clears a mark, a checkpoint replaces all marks, a settled message has
    none. Unreadable records and those of a replaced stream are ignored.
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
                    runs=pack_runs(runs(sorted(new_runs)), 0), marks=pack_pairs(sorted(marked.items()), 0),
                )
            )
        )  # fmt: skip
    state = fold(raws)
    assert {s: mark for s, mark in known.items() if mark and s not in settled} == state.marks
    assert sum(kind == "corrupt" for kind, *_ in steps) == state.unreadable


def test_record_without_marks_is_read():
    """Rolling upgrade: a record of a release that had no marks."""
    old = msgspec.msgpack.encode([VERSION, 7, 3, "s", 9, 90, 4, pack_runs([(6, 6)], 4), False])
    state = fold([old])
    assert ({}, 0, 3) == (state.marks, state.unreadable, state.number)
    assert [(6, 6)] == list(state.settled.above())


def test_records_of_before_a_reset_are_void():
    """K10: their messages come again; also if the record that follows the reset is no checkpoint."""
    before = encode(record(version=2, watermark=4, runs=pack_runs([(6, 7)], 4), marks=pack_pairs([(8, 4)], 4)))
    after = encode(record(version=2, number=2, watermark=2, reset=9))
    state = fold(
        [before, after, encode(record(version=2, number=3, watermark=2, runs=pack_runs([(5, 5)], 2), reset=9))]
    )
    assert (9, 2, [(5, 5)], {}) == (state.reset, state.settled.watermark, [*state.settled.above()], state.marks)
