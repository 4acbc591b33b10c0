"""Counts of the messages that were certainly lost with a stream that was replaced or rolled back (fault F6)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget, MessageRef, entry_of
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.lost_messages import count_gone
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.queue.queue_rules import QueueRules
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


def ready(queue, lane):
    for entry in at(lane, 1, 2, 3):
        queue.hold(entry, MemoryBudget())


def waiting(queue, lane):
    if lane.later:
        for sequence in (1, 2, 3):
            queue.add_due("later", sequence)
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
    queue.apply(QueueRules(asleep=False, ordered=True, careful=True), MemoryBudget())
    queue.order.admit("k", MessageRef(lane, 9))
    for entry in at(lane, 1, 2):
        queue.order.wait("k", entry, MemoryBudget())
    queue.order.next.append(MessageRef(lane, 3))


PLACES = [
    *((kind, where) for kind in ("lanes", "later") for where in (ready, waiting, being_read, behind_their_key)),
    ("lanes", spilled), ("later", not_due),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "where"), PLACES)
def test_lost_message_counts_once_for_its_own_stream(kind, where):
    queue, main, later = made()
    lane, other = (main, later) if kind == "lanes" else (later, main)
    where(queue, lane)
    assert {queue: 3} == count_gone(lane, WIPED, none)
    assert {} == count_gone(other, WIPED, none)


@pytest.mark.parametrize(("kind", "where"), PLACES)
def test_rollback_counts_messages_above_the_end(kind, where):
    queue, main, later = made()
    lane = main if kind == "lanes" else later
    where(queue, lane)
    for end, gone in ((0, 3), (1, 2), (2, 1), (3, 0), (9, 0)):
        assert gone == count_gone(lane, LaneState("first", 1, end, 9), none)[queue]


def test_messages_between_attempts_are_counted():
    queue, main, later = made()
    resting = [MessageRef(main, 1), MessageRef(main, 2), MessageRef(later, 3)]
    assert {queue: 2} == count_gone(main, WIPED, lambda _: resting)
    assert {queue: 1} == count_gone(later, WIPED, lambda _: resting)


def test_dropped_messages_are_not_counted():
    queue, main, _ = made()
    waiting(queue, main)
    main.dropped.add(2)
    assert {queue: 2} == count_gone(main, WIPED, none)


def test_queue_without_losses_is_not_listed():
    queue, main, _ = made()
    assert {} == count_gone(main, WIPED, none)
    assert 0 == queue.stats.missing


steps = st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c"]), st.booleans()), max_size=30)


@given(puts=steps, read_ahead=st.integers(1, 4), index=st.integers(1, 6), to=st.integers(0, 30), more=st.integers(0, 4))
def test_count_never_exceeds_the_loss(puts, read_ahead, index, to, more):
    """The count is exact for a replaced stream, and a lower bound for one that was rolled back: spilled messages may be
    below its end.
    """
    stream = Stream()
    owner = Owner(stream, [], 1, MemoryBudget(read_ahead=read_ahead, index=index))
    lane, known = owner.lane, {subject: set() for subject in (b"a", b"b", b"c")}
    for subject, taken in puts:
        stream.put(subject)
        assert owner.feed()
        known[subject].add(stream.last)
        if taken and owner.queues[subject].ready:
            known[subject].discard(owner.queues[subject].take(owner.limits)[1])
    wiped = count_gone(lane, stream.state()._replace(created="another"), none)
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
