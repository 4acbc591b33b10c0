"""How far the hours of a delay stream are settled, against a plain model."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.core.lane.hour_progress import HourProgress

FIRST = 490_000
hours = st.integers(FIRST, FIRST + 3)
streams = st.lists(hours, max_size=30)  # the hour of each message, in stream order


def subject_of(hour: object) -> bytes:
    return f"later.online.0.p.0.mid.{hour}".encode()


def deliver(progress: HourProgress, stream: list[int], settled: set[int], among: list[int]) -> None:
    """Feed these hours from where they must begin."""
    start = progress.find_start(among)
    for sequence, hour in enumerate(stream, 1):
        if sequence >= start and hour in among:
            progress.note(subject_of(hour), sequence, settled=sequence in settled)


@given(streams, st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)), st.lists(hours, max_size=4, unique=True))
def test_next_owner_is_fed_all_that_is_open(stream, first, then, together):
    """L, K10: and nothing below the first open message of an hour that has a feed of its own."""
    progress = HourProgress()
    for owner, settled in enumerate([first, first | then]):
        for hour in {*stream} - {*together}:
            deliver(progress, stream, first if owner else set(), [hour])
        if together:
            deliver(progress, stream, first if owner else set(), together)
        progress.note_settled(sorted(settled))
        found = progress.positions()
        for hour in {*stream}:
            of_hour = [sequence for sequence, each in enumerate(stream, 1) if each == hour]
            open_ones = [sequence for sequence in of_hour if sequence not in settled]
            assert found[hour] == (open_ones[0] - 1 if open_ones else of_hour[-1])
        progress = HourProgress(found)


@pytest.mark.parametrize(
    "word", ["x", "0490000", "9" * 41, "\u0664\u0664"], ids=["no number", "padded", "huge", "arabic"]
)
def test_word_that_is_no_hour_is_fed_from_the_beginning(word):
    """F4: anybody may put to a delay stream, and one word must not make the settle log unreadable."""
    progress = HourProgress({FIRST: 7})
    progress.note(subject_of(word), 9, settled=True)
    assert {FIRST: 7} == progress.positions()
    assert (8, 1, 1) == (progress.find_start([FIRST]), progress.find_start([FIRST, None]), progress.find_start([]))


def test_nothing_is_kept_where_no_other_subscription_reads():
    progress = HourProgress(tracks=False)
    progress.note(subject_of(FIRST), 8, settled=False)
    progress.note_settled([8])
    assert ({}, 1) == (progress.positions(), progress.find_start([FIRST]))


def test_hours_that_the_stream_has_no_more_are_forgotten():
    progress = HourProgress({FIRST: 7, FIRST + 1: 9})
    progress.note(subject_of(FIRST), 8, settled=False)
    progress.retain({FIRST + 1})
    assert {FIRST + 1: 9} == progress.positions()
