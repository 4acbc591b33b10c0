"""What was known of a stream that was replaced or rolled back, and is surely gone (fault F6)."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget, MessageRef, entry_of
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.lost_messages import count_gone
from evenlane.engine.core.queue.queue import Queue
from tests.support.lane_host import Host
from tests.support.lane_owner import Owner, Stream

WIPED = LaneState("another", 1, 500, 9)


def none(_queue):
    return ()


def lane_with(queue, kind="lanes", subjects=(b"s",)):
    lane = FedLane(LaneId(kind, 1), 1, MemoryBudget(), Host(lambda *_: queue))
    lane.created = "first"
    lane.queues = dict.fromkeys(subjects, queue)
    return lane


def made():
    queue = Queue("acme", 0, "mid", 1, 1)
    return queue, lane_with(queue), lane_with(queue, "later", (b"s.1", b"s.2"))


def at(lane, *sequences):
    return [entry_of(lane, sequence, 0, b"", b"x") for sequence in sequences]


def in_hand(queue, lane):
    for entry in at(lane, 1, 2, 3):
        queue.hold(entry, MemoryBudget())


def waiting(queue, lane):
    if lane.later:
        for sequence in (1, 2, 3):
            queue.add_due(sequence)
    else:
        queue.waiting.extend([7, 1, 2, 3])
        queue.waiting.take(1)


def being_read(queue, lane):
    waiting(queue, lane)
    queue.next_to_read(2)


def not_due(_queue, lane):
    for number, subject in enumerate((b"s.1", b"s.2", b"s.1"), start=1):
        lane.delayed.add(subject, number, number)


def spilled(queue, _lane):
    queue.spill(1, 3)


def behind_their_key(queue, lane):
    queue.keep_order(True, MemoryBudget())
    queue.order.admit("k", MessageRef(lane, 9))
    for entry in at(lane, 1, 2):
        queue.order.wait("k", entry, MemoryBudget())
    queue.order.next.append(MessageRef(lane, 3))


PLACES = [
    *((kind, where) for kind in ("lanes", "later") for where in (in_hand, waiting, being_read, behind_their_key)),
    ("lanes", spilled), ("later", not_due),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "where"), PLACES)
def test_wherever_it_waits_it_is_counted_once_and_for_its_stream_alone(kind, where):
    queue, main, later = made()
    mine, other = (main, later) if kind == "lanes" else (later, main)
    where(queue, mine)
    assert {queue: 3} == count_gone(mine, WIPED, none)
    assert {} == count_gone(other, WIPED, none)


@pytest.mark.parametrize(("kind", "where"), PLACES)
def test_of_one_that_was_rolled_back_what_lies_above_its_end(kind, where):
    queue, main, later = made()
    mine = main if kind == "lanes" else later
    where(queue, mine)
    for end, gone in ((0, 3), (1, 2), (2, 1), (3, 0), (9, 0)):
        assert gone == count_gone(mine, LaneState("first", 1, end, 9), none)[queue]


def test_what_waits_for_its_next_attempt_is_counted():
    queue, main, later = made()
    resting = [MessageRef(main, 1), MessageRef(main, 2), MessageRef(later, 3)]
    assert {queue: 2} == count_gone(main, WIPED, lambda _: resting)
    assert {queue: 1} == count_gone(later, WIPED, lambda _: resting)


def test_what_was_dropped_on_purpose_is_not_missing():
    queue, main, _ = made()
    waiting(queue, main)
    main.dropped.add(2)
    assert {queue: 2} == count_gone(main, WIPED, none)


def test_queues_that_lost_nothing_are_not_named():
    queue, main, _ = made()
    assert {} == count_gone(main, WIPED, none)
    assert 0 == queue.missing


steps = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.booleans()), max_size=30)


@given(puts=steps, read_ahead=st.integers(1, 4), index=st.integers(1, 6), to=st.integers(0, 30), more=st.integers(0, 4))
def test_never_more_than_what_is_gone(puts, read_ahead, index, to, more):
    """A stream that is wiped takes exactly what was known; of one that is rolled back it is the least: what has
    spilled may lie below its end.
    """
    stream = Stream()
    owner = Owner(stream, [], 1, MemoryBudget(read_ahead=read_ahead, index=index))
    lane, known = owner.lane, {subject: set() for subject in (b"a", b"b", b"c")}
    for subject, taken in puts:
        stream.put(subject)
        assert owner.feed()
        known[subject].add(stream.last)
        if taken and owner.queues[subject].hand:
            known[subject].discard(owner.queues[subject].take(owner.limits)[1])
    wiped = count_gone(lane, SimpleNamespace(created="another", last=stream.last), none)
    assert {key: len(found) for key, found in known.items() if found} == {
        queue.project.encode(): count for queue, count in wiped.items()
    }
    to = min(to, stream.last)
    stream.roll_back(to)
    for _ in range(more):
        stream.put(b"a")
    rolled_back = count_gone(lane, stream.state(), none)
    for subject, queue in owner.queues.items():
        really = {sequence for sequence in known[subject] if sequence > to}
        assert rolled_back[queue] <= len(really)
        if not queue.spilled and not more:
            assert len(really) == rolled_back[queue]
