"""The in-flight record: what the next owner reads is what the former one may have been handling (X11)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane import in_flight_record
from evenlane.engine.core.lane.in_flight_record import InFlightListing, InFlightSet
from evenlane.engine.core.ports import BusyRecord

AT = 90  # when a record arrived


class Lane:
    """Compared by identity, as lanes are."""

    def __init__(self, lane_id, epoch):
        self.id, self.epoch = lane_id, epoch


def lane(partition=1, kind="lanes", epoch=7):
    return Lane(LaneId(kind, partition), epoch)


def listed(records, lane_id, epoch):
    return in_flight_record.list_in_flight([BusyRecord(AT, raw) for raw in records], lane_id, epoch)


def sequences(records, of, epoch=7):
    return [each.sequence for each in listed(records, of.id, epoch)]


steps = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 300)))


@given(steps, st.sets(st.integers(0, 40)))
def test_says_what_is_in_flight(steps, written):
    """X11: whatever came and went, and however often it was written between, the record names what is there."""
    lanes = [lane(0), lane(1), lane(1, "later"), lane(1, epoch=9)]
    state, oracle = InFlightSet(), [set() for _ in lanes]
    for number, (comes, which, sequence) in enumerate(steps):
        (state.add if comes else state.remove)(lanes[which], sequence)
        (oracle[which].add if comes else oracle[which].discard)(sequence)
        if number in written:
            state.record()
    raw = state.record()
    for each, expected in zip(lanes, oracle, strict=True):
        assert sorted(expected) == sequences([raw], each, each.epoch)
        assert expected == state.of(each)
    assert sum(map(len, oracle)) == state.count
    assert max(2, state.count) == msgspec.msgpack.decode(raw)[1]


def test_all_count_while_nobody_is_suspected():
    """X11: after a first death each may have been the cause, and none is confirmed."""
    state, one, other = InFlightSet(), lane(1), lane(2)
    state.add(one, 5)
    state.add(one, 6)
    state.add(other, 1)
    raw = state.record()
    assert [InFlightListing(5, True, False, AT), InFlightListing(6, True, False, AT)] == listed([raw], one.id, 7)


def test_nor_is_who_was_alone_in_it():
    """X11: fresh messages run beside it, which no record names; nor does an older release take it for the cause."""
    state, one = InFlightSet(), lane()
    state.add(one, 5)
    raw = state.record()
    assert [InFlightListing(5, True, False, AT)] == listed([raw], one.id, 7)
    assert 2 == msgspec.msgpack.decode(raw)[1]


def test_the_suspect_is_confirmed_and_all_count():
    """X11: one that went free beside it could kill its process twice for nothing."""
    state, one, other = InFlightSet(), lane(1), lane(2)
    state.add(one, 5)
    state.add(one, 6)
    state.add(other, 6)
    state.suspect = (one, 6)
    raw = state.record()
    assert [InFlightListing(5, True, False, AT), InFlightListing(6, True, True, AT)] == listed([raw], one.id, 7)
    assert [InFlightListing(6, True, False, AT)] == listed([raw], other.id, 7)


def test_each_is_counted_once():
    """A message that is named twice, as its fallback follows its handler, goes with its first end."""
    state, one = InFlightSet(), lane()
    state.add(one, 5)
    state.add(one, 5)
    assert 1 == state.count
    assert state.remove(one, 5)
    assert not state.remove(one, 5)
    assert 0 == state.count


def test_of_all_processes_those_under_the_epoch():
    """X11: what a process had under an earlier epoch was counted by whoever came after it."""
    before, after = InFlightSet(), InFlightSet()
    before.add(lane(epoch=6), 3)
    after.add(lane(epoch=7), 4)
    raw = [before.record(), after.record()]
    assert [4] == sequences(raw, lane())
    assert [3] == sequences(raw, lane(), 6)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"not a record",
        msgspec.msgpack.encode([in_flight_record.VERSION + 1, 1, None, [["lanes", 1, 7, [1]]]]),  # a later version
        msgspec.msgpack.encode([1, 1, None, [["lanes", 1, 7, b"\x00"]]]),
        msgspec.msgpack.encode([1, 1, None, [["lanes", 1, "x", [1]]]]),
        msgspec.msgpack.encode([1]),
        msgspec.msgpack.encode([1, 2, None, [["lanes", 1, 7, [1, 0]]]]),  # a server refuses to look for that one
        msgspec.msgpack.encode([1, 2, None, [["lanes", 1, 7, [1, 1 << 63]]]]),
    ],
)
def test_what_is_no_record_is_passed_over(raw):
    """X11: one that can't be read costs only what it would have said."""
    state, one = InFlightSet(), lane()
    state.add(one, 2)
    assert [2] == sequences([raw, state.record(), raw], one)


def test_a_record_is_small():
    """It is written before handlers start: 64 messages of one lane cost a few bytes each, of 64 lanes some twenty."""
    near, far = InFlightSet(), InFlightSet()
    one = lane()
    for number in range(64):
        near.add(one, 1_000_000 + 3 * number)
        far.add(lane(number), 1_000_000)
    assert len(near.record()) < 6 * 64
    assert len(far.record()) < 20 * 64
