"""The settled set against a plain Python set."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.lane.settled_set import SettledSet, common_runs, runs

CHUNK = 4096
# around the edges of the chunks, where errors are likely
edges = st.builds(lambda chunk, off: max(1, chunk * CHUNK + off), st.integers(0, 3), st.integers(-3, 3))
sequences = st.one_of(st.integers(1, 40), edges)
lengths = st.one_of(st.integers(0, 5), st.sampled_from([CHUNK - 1, CHUNK, CHUNK + 1, 2 * CHUNK]))
adds = st.tuples(st.just("add"), sequences, lengths)
discards = st.tuples(st.just("discard"), sequences, st.just(0))
operations = st.lists(st.one_of(adds, adds, discards), max_size=25)


def watermark_of(members: set[int]) -> int:
    watermark = 0
    while watermark + 1 in members:
        watermark += 1
    return watermark


def runs_of(members: list[int]) -> list[tuple[int, int]]:
    grouped = (list(group) for _, group in groupby(enumerate(members), key=lambda pair: pair[1] - pair[0]))
    return [(group[0][1], group[-1][1]) for group in grouped]


def after(steps) -> tuple[SettledSet, set[int]]:
    """The set and its oracle after the same steps; members below the watermark can't be discarded."""
    settled, members, watermark = SettledSet(), set(), 0
    for kind, first, length in steps:
        if kind == "add":
            settled.add_run(first, first + length)
            members |= set(range(first, first + length + 1))
        else:
            settled.discard(first)
            if first > watermark:
                members.discard(first)
        watermark = max(watermark, watermark_of(members))
    return settled, members


@given(operations)
def test_settled_set_matches_a_plain_set(steps):
    settled, members = after(steps)
    around = {s + d for s in members for d in (-1, 1)} | members | {1}
    assert members & around == {s for s in around if s > 0 and s in settled}
    assert watermark_of(members) == settled.watermark


@given(operations)
def test_gaps_match_a_plain_set(steps):
    """K10: what isn't settled below the highest settled message."""
    settled, members = after(steps)
    highest = max(members, default=0)
    expected = [each for each in range(settled.watermark + 1, highest) if each not in members]
    assert runs_of(expected) == list(settled.gaps())


@given(st.lists(operations, min_size=1, max_size=3), operations, sequences)
def test_common_runs_match_plain_sets(several, excluded, start):
    """K10: what all subscriptions have settled, without what is removed already."""
    sets, members = zip(*map(after, several), strict=True)
    without, absent = after(excluded)
    expected = sorted(s for s in set.intersection(*members) - absent if s >= start)
    found = list(common_runs(sets, without, start))
    assert expected == [s for first, last in found for s in range(first, last + 1)]


@given(st.lists(st.integers(1, 3 * CHUNK), max_size=30), st.lists(st.integers(1, 3 * CHUNK), max_size=30))
def test_set_from_minus_one_loses_any_member(added, discarded):
    settled = SettledSet(-1)
    settled.add_sorted(sorted(set(added)))
    for sequence in discarded:
        settled.discard(sequence)
    assert runs_of(sorted(set(added) - set(discarded))) == list(settled.above())


@given(operations, sequences)
def test_above_lists_runs_above_watermark_and_start(steps, start):
    settled, members = after(steps)
    above = sorted(s for s in members if s > settled.watermark)
    assert runs_of(above) == list(settled.above())
    assert runs_of([s for s in above if s >= start]) == list(settled.above(start))


@given(st.sets(st.integers(1, 300)), st.sets(st.integers(1, 300)))
def test_add_sorted_adds_all_members(one, other):
    settled = SettledSet()
    settled.add_sorted(sorted(one))
    settled.add_sorted(sorted(other))
    assert one | other == {s for s in range(1, 302) if s in settled}


@given(st.sets(st.integers(1, 300)))
def test_runs_groups_consecutive_sequences(members):
    assert runs_of(sorted(members)) == list(runs(sorted(members)))


def test_runs_ignores_repeats():
    assert [(1, 2), (4, 4)] == list(runs(iter([1, 1, 2, 2, 4, 4])))
    assert [(1, 2), (4, 4)] == list(runs([1, 1, 2, 2, 4, 4]))
