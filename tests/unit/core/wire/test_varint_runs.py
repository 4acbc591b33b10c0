"""Settled runs and marks of a settle record, packed as varints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.lane.settled_set import runs
from evenlane.engine.core.wire.varint_runs import pack_pairs, pack_runs, unpack_pairs, unpack_runs

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
    assert spans == unpack_runs(pack_runs(spans, base), base)


def test_packed_run_costs_a_few_bytes():
    """M: a settled message above a pinned watermark costs 2 bytes, a run of a million 4."""
    assert 2 == len(pack_runs([(5, 5)], 0))
    assert 4 == len(pack_runs([(5, 1_000_000)], 0))
    assert 2_000 == len(pack_runs(runs(range(2, 2_002, 2)), 0))


@given(bases, gaps, st.integers(1, 3))
def test_truncated_runs_raise_or_unpack_to_a_prefix(base, gaps, cut):
    packed = pack_runs(spans_of(base, gaps), base)
    try:
        spans = unpack_runs(packed[:-cut], base)
    except ValueError:
        return
    assert spans == spans_of(base, gaps)[: len(spans)]


@pytest.mark.parametrize("read", [unpack_runs, unpack_pairs])
@pytest.mark.parametrize("bad", [b"\x01", b"\x80", b"\x01\x80", b"\x01\x02\x03"])
def test_half_a_run_or_mark_is_refused(bad, read):
    with pytest.raises(ValueError, match="cut short"):
        read(bad, 0)


def test_endless_number_is_refused():
    """F4: reading it would cost the square of its length."""
    with pytest.raises(ValueError, match="no end"):
        unpack_runs(b"\xff" * (1 << 20), 0)
    mark = (1 << 117) - 1
    assert [(1, mark)] == unpack_pairs(pack_pairs([(1, mark)], 0), 0)


marks = st.dictionaries(st.integers(1, 2_000), st.integers(0, (1 << 14) | (4_102_444_800 << 14)))


@given(bases, marks)
def test_marks_survive_packing(base, marks):
    """K2, X11: attempts, suspicion, and the due time of the next attempt."""
    rising = sorted((base + sequence, mark) for sequence, mark in marks.items())
    assert rising == unpack_pairs(pack_pairs(rising, base), base)


def test_packed_mark_costs_a_few_bytes():
    """M: a mark costs 2 bytes, and 8 with a due time."""
    assert 2 == len(pack_pairs([(5, 3 << 2)], 0))
    assert 8 == len(pack_pairs([(5, 3 << 2 | 1_800_000_000 << 14)], 0))
