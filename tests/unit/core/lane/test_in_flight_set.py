"""The in-flight record names the messages that its process may have been handling when it died (X11)."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.in_flight_set import InFlightListing, InFlightSet, list_in_flight
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.ports import BusyRecord

AT = 90  # when a record arrived


def lane(partition=1, kind="lanes", epoch=7):
    return Lane(LaneId(kind, partition), epoch)


def listed(records, lane_id, epoch):
    return list_in_flight([BusyRecord(AT, raw) for raw in records], lane_id, epoch)


def sequences(records, of, epoch=7):
    return [each.sequence for each in listed(records, of.id, epoch)]


steps = st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(1, 300)))


@given(steps, st.sets(st.integers(0, 40)))
def test_record_names_exactly_the_messages_in_flight(steps, written):
    """X11: after any order of starts and ends, and any number of records in between."""
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
        assert expected == state.in_lane(each)
    assert sum(map(len, oracle)) == state.count
    assert max(2, state.count) == msgspec.msgpack.decode(raw)[1]


def test_all_recorded_messages_count_and_none_is_confirmed():
    """X11: after a first death each of them may have been the cause."""
    state, one, other = InFlightSet(), lane(1), lane(2)
    state.add(one, 5)
    state.add(one, 6)
    state.add(other, 1)
    raw = state.record()
    assert [InFlightListing(5, True, False, AT), InFlightListing(6, True, False, AT)] == listed([raw], one.id, 7)


def test_lone_recorded_message_is_not_confirmed():
    """X11: unrecorded messages run at the same time; with a count of 2, an older release doesn't confirm it either."""
    state, one = InFlightSet(), lane()
    state.add(one, 5)
    raw = state.record()
    assert [InFlightListing(5, True, False, AT)] == listed([raw], one.id, 7)
    assert 2 == msgspec.msgpack.decode(raw)[1]


def test_recorded_suspect_is_confirmed_and_all_count():
    """X11: a message without a counted attempt could kill its process twice at no cost."""
    state, one, other = InFlightSet(), lane(1), lane(2)
    state.add(one, 5)
    state.add(one, 6)
    state.add(other, 6)
    state.suspect = (one, 6)
    raw = state.record()
    assert [InFlightListing(5, True, False, AT), InFlightListing(6, True, True, AT)] == listed([raw], one.id, 7)
    assert [InFlightListing(6, True, False, AT)] == listed([raw], other.id, 7)


def test_message_added_twice_counts_once():
    """A message added by its handler and by its fallback is removed at its first end."""
    state, one = InFlightSet(), lane()
    state.add(one, 5)
    state.add(one, 5)
    assert 1 == state.count
    assert state.remove(one, 5)
    assert not state.remove(one, 5)
    assert 0 == state.count


def test_listing_has_only_messages_of_its_epoch():
    """X11: messages of an earlier epoch were counted by the owner that followed it."""
    before, after = InFlightSet(), InFlightSet()
    before.add(lane(epoch=6), 3)
    after.add(lane(epoch=7), 4)
    raw = [before.record(), after.record()]
    assert [4] == sequences(raw, lane())
    assert [3] == sequences(raw, lane(), 6)


def test_unreadable_record_is_skipped():
    """X11: the other records still count."""
    state, one = InFlightSet(), lane()
    state.add(one, 2)
    assert [2] == sequences([b"not a record", state.record(), b""], one)


def test_record_costs_a_few_bytes_per_message():
    """M: written before handlers start, a message costs under 6 bytes in one lane, and under 20 in 64 lanes."""
    near, far = InFlightSet(), InFlightSet()
    one = lane()
    for number in range(64):
        near.add(one, 1_000_000 + 3 * number)
        far.add(lane(number), 1_000_000)
    assert len(near.record()) < 6 * 64
    assert len(far.record()) < 20 * 64
