"""The settled set against a plain Python set."""

from itertools import groupby

from hypothesis import given, settings
from hypothesis import strategies as st

from evenlane.engine.core.lane.settled_set import SettledSet, runs

CHUNK = 4096
# around the chunks' edges, where mistakes would be
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


def carried_out(steps) -> tuple[SettledSet, set[int]]:
    """Both after the same steps; what is below the watermark stays in."""
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


@settings(deadline=None)
@given(operations)
def test_it_holds_what_a_plain_set_holds(steps):
    settled, members = carried_out(steps)
    around = {s + d for s in members for d in (-1, 1)} | members | {1}
    assert members & around == {s for s in around if s > 0 and s in settled}
    assert watermark_of(members) == settled.watermark


@settings(deadline=None)
@given(operations, sequences)
def test_above_gives_the_rising_runs_above_watermark_and_start(steps, start):
    settled, members = carried_out(steps)
    above = sorted(s for s in members if s > settled.watermark)
    assert runs_of(above) == list(settled.above())
    assert runs_of([s for s in above if s >= start]) == list(settled.above(start))


@given(st.sets(st.integers(1, 300)), st.sets(st.integers(1, 300)))
def test_sorted_lists_are_added_whole(one, other):
    settled = SettledSet()
    settled.add_sorted(sorted(one))
    settled.add_sorted(sorted(other))
    assert one | other == {s for s in range(1, 302) if s in settled}


@given(st.sets(st.integers(1, 300)))
def test_runs_cut_a_rising_list_into_runs(members):
    assert runs_of(sorted(members)) == list(runs(sorted(members)))


def test_runs_pass_over_repeats():
    assert [(1, 2), (4, 4)] == list(runs(iter([1, 1, 2, 2, 4, 4])))
    assert [(1, 2), (4, 4)] == list(runs([1, 1, 2, 2, 4, 4]))


def test_one_pinned_message_keeps_the_map_small_however_long_the_lane_runs_above_it():
    """M: whole chunks are one shared marker."""
    settled = SettledSet()
    for sequence in range(2, 200_000):
        settled.add(sequence)
    assert 0 == settled.watermark
    assert settled.mixed_bytes <= 2 * CHUNK
    settled.add(1)
    assert 199_999 == settled.watermark
    assert settled.mixed_bytes <= CHUNK
    assert [] == list(settled.above())
