"""A lane's single steps: the catch-up with a tail, the later stream, the log's records, what is void after a reset."""

from hypothesis import example, given
from hypothesis import strategies as st

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane import settle_record
from evenlane.engine.core.lane.settle_log import CHECKPOINT_EVERY
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.wire import headers as h
from tests.support.lane_host import Host
from tests.support.lane_owner import LANE, Owner, Stream

TICK = 10_000_000
LATER = LaneId("later", 3)


def opened(_lane, subject, _entry):
    queue = Queue(subject.decode(), 0, "mid", 1, 3)
    queue.asleep = False
    return queue


def lane_of(lane: LaneId = LANE, open_queue=opened) -> FedLane:
    made = FedLane(lane, 1, MemoryBudget(), Host(open_queue))
    made.recover(settle_record.LogState(), LaneState("s", 0, 0, 0), None)
    return made


def acked(lane: FedLane, now: int = 0):
    append = lane.cut(now)
    lane.log.acknowledged(append)
    return append


# ---- catch-up with a tail


def test_a_queue_that_is_complete_is_served_before_the_catch_up_ends():
    """A take-over with a long backlog holds up only those who have one."""
    stream = Stream()
    for _ in range(10):
        stream.put(b"hot")
    owner = Owner(stream, [], 1, MemoryBudget())
    owner.begin_with_a_tail()
    stream.put(b"cold")
    stream.put(b"hot")
    owner.feed_tail()
    owner.feed_tail()
    assert [11] == [entry[1] for entry in owner.queues[b"cold"].hand]
    assert ([], 1) == (list(owner.queues[b"hot"].hand), owner.queues[b"hot"].spilled)


steps = st.lists(st.sampled_from(["feed", "tail", "take", "head of a", "head of b", "three of a"]), max_size=60)


@given(st.text("ab", min_size=1, max_size=30), st.text("abc", max_size=30), steps)
@example("aaaaaa", "aaaa", ["feed"] * 5 + ["tail", "feed", "tail", "tail", "take", "take"])  # was handed out twice
def test_each_queue_keeps_its_order_over_catch_up_and_tail(backlog, tail, steps):
    """L, D: whatever was read ahead of the catch-up, each message is handed out once."""
    stream = Stream()
    for subject in backlog:
        stream.put(subject.encode())
    owner = Owner(stream, [], 1, MemoryBudget(read_ahead=3, index=4))
    owner.begin_with_a_tail()
    for subject in tail:
        stream.put(subject.encode())
    handed: dict[bytes, list[int]] = {}

    def take_all() -> None:
        for subject, queue in owner.queues.items():
            owner.read(subject, 3)
            while queue.hand:
                handed.setdefault(subject, []).append(queue.take(owner.limits)[1])

    calls = {
        "feed": owner.feed, "tail": owner.feed_tail, "take": take_all,
        "head of a": lambda: owner.read_ahead(b"a"), "head of b": lambda: owner.read_ahead(b"b"),
        "three of a": lambda: owner.read_ahead(b"a", 3),
    }  # fmt: skip
    for step in steps:
        calls[step]()
    while owner.feed():
        pass
    for _ in backlog + tail:
        take_all()
    expected = {
        subject: [s for s, (of, _) in stream.held.items() if of == subject] for subject, _ in stream.held.values()
    }
    assert expected == handed


def test_a_head_that_was_read_ahead_is_at_hand_with_its_body():
    """E5: behind nine messages of somebody else; the feed passes over it when it comes to it."""
    stream = Stream()
    for subject in [b"hot"] * 9 + [b"small"]:
        stream.put(subject)
    owner = Owner(stream, [], 1, MemoryBudget())
    owner.begin_with_a_tail()
    owner.read_ahead(b"small")
    assert [(10, b"10")] == [(entry[1], entry[4]) for entry in owner.queues[b"small"].hand]
    assert not owner.lane.lacks(b"small")
    while owner.feed():
        pass
    assert [10] == [entry[1] for entry in owner.queues[b"small"].hand]


def test_what_is_settled_already_is_not_read_ahead():
    """A queue of which nothing but settled messages is left is complete, and what the tail brings goes at once."""
    stream = Stream()
    for subject in [b"hot", b"small", b"hot", b"small"]:
        stream.put(subject)
    first = Owner(stream, [], 1, MemoryBudget())
    while first.feed():
        pass
    for sequence in (2, 4):
        first.lane.settle(sequence, first.lane.generation, 0)
    first.store(first.lane.cut(0))
    owner = Owner(stream, first.log, 2, MemoryBudget())
    owner.begin_with_a_tail()
    assert 1 == owner.lane.next_ahead(b"small")
    owner.read_ahead(b"small", 2)
    owner.read_ahead(b"small", 2)
    assert (None, False) == (owner.lane.next_ahead(b"small"), owner.lane.lacks(b"small"))
    assert [] == owner.queues[b"small"].hand
    stream.put(b"small")
    owner.feed_tail()
    assert [5] == [entry[1] for entry in owner.queues[b"small"].hand]


def test_what_is_deleted_at_the_end_of_the_catch_up_pins_nothing():
    """E12."""
    lane = lane_of()
    lane.expect_backlog({"a": 1}, 5)
    lane.take_in(b"a", 1, 1, b"", b"")
    lane.caught_up(5)
    lane.settle(1, 0, 0)
    acked(lane)
    assert (5, 5) == (lane.position, lane.removal.durable_watermark)


# ---- the later stream


BEGIN = 1_700_000_000 * 1_000_000_000


def put_later(lane: FedLane, sequence: int, due: int, subject: bytes = b"a") -> None:
    """`due` in ns after `BEGIN`, as all times here."""
    lane.take_in_later(subject, sequence, 0, h.encode({h.DUE: str(BEGIN + due)}), b"")


dues = st.lists(st.tuples(st.integers(0, 40), st.sampled_from([b"a", b"b"])), max_size=60)


@given(dues, st.lists(st.tuples(st.integers(0, 8), st.integers(1, 5), st.integers(1, 70)), max_size=40))
def test_what_is_due_is_released_in_order_and_nothing_early(messages, steps):
    """K1, against a sorted list: at each time exactly what is due, the earliest first, up to the limit; and nothing
    that was cancelled before.
    """
    lane = lane_of(LATER)
    waiting = sorted((due, sequence, subject) for sequence, (due, subject) in enumerate(messages, 1))
    for sequence, (due, subject) in enumerate(messages, 1):
        put_later(lane, sequence, due * TICK, subject)
    now = 0
    for step, limit, cancelled in steps:
        now += step
        subject = next((of for _, sequence, of in waiting if sequence == cancelled), b"a")
        waiting, before = [message for message in waiting if message[1] != cancelled], len(waiting)
        assert lane.delayed.cancel(subject, cancelled) is (len(waiting) < before)
        assert (BEGIN + waiting[0][0] * TICK if waiting else None) == lane.delayed.next_due()
        lane.release_due(BEGIN + now * TICK + TICK - 1, limit)
        due_now = [message for message in waiting if message[0] <= now]
        got = {subject: drained(lane, subject) for subject in (b"a", b"b")}
        assert min(limit, len(due_now)) == sum(map(len, got.values()))
        for subject, sequences in got.items():
            mine = [sequence for _, sequence, of in due_now if of == subject]
            assert mine[: len(sequences)] == sequences
        gone = {sequence for sequences in got.values() for sequence in sequences}
        waiting = [message for message in waiting if message[1] not in gone]
        assert len(waiting) == len(lane.delayed)


def drained(lane: FedLane, subject: bytes) -> list[int]:
    queue = lane.queues.get(subject)
    if queue is None or not queue.due:
        return []
    assert (True, []) == (queue.next_to_read(0)[0], [])
    return queue.next_to_read(10_000)[1]


def test_a_message_is_never_due_before_its_time():
    """Due times are kept in steps of 10 ms, rounded up."""
    lane = lane_of(LATER)
    put_later(lane, 1, 5 * TICK + 1)
    assert [] == lane.release_due(BEGIN + 6 * TICK - 1, 10)
    assert 1 == len(lane.release_due(BEGIN + 6 * TICK, 10))


def test_a_hundred_thousand_due_at_the_same_instant_cost_one_timer():
    lane = lane_of(LATER)
    for sequence in range(1, 1_001):
        put_later(lane, sequence, 5 * TICK)
    assert 1 == len(lane.delayed._next)
    assert 1_000 == sum(len(queue.due) for queue in lane.release_due(BEGIN + 5 * TICK, 10_000))


def test_a_later_message_settled_but_not_yet_deleted_is_in_every_checkpoint():
    lane = lane_of(LATER)
    for sequence in (1, 2, 3):
        put_later(lane, sequence, 0)
        lane.settle(sequence, 0, 0)
    acked(lane)
    lane.removal.erased([2])
    lane.log.checkpoint_due = True
    log = settle_record.fold([settle_record.encode(acked(lane).record)])
    successor = FedLane(LATER, 2, MemoryBudget(), Host(opened))
    assert successor.recover(log, LaneState("s", 1, 3, 0), None)
    log = settle_record.fold([settle_record.encode(acked(successor).record)])
    assert [1, 3] == [s for s in (1, 2, 3) if s in log.settled]
    assert [1, 3] == successor.removal.to_erase(10)


# ---- records


def test_a_checkpoint_follows_after_so_many_appends():
    lane = lane_of()
    for sequence in range(1, 2 * CHECKPOINT_EVERY + 5):
        lane.take_in(b"a", sequence, sequence, b"", b"")
    records = []
    for sequence in range(1, 2 * CHECKPOINT_EVERY + 5):
        lane.settle(sequence, 0, 0)
        records.append(acked(lane).record)
    checkpoints = [number for number, record in enumerate(records) if record.checkpoint]
    assert [0, CHECKPOINT_EVERY + 1, 2 * CHECKPOINT_EVERY + 2] == checkpoints


def test_nothing_is_cut_without_news_nor_twice_at_once_nor_when_fenced():
    lane = lane_of()
    first = lane.cut(0)
    assert (True, None) == (first.record.checkpoint, lane.cut(0))
    lane.log.acknowledged(first)
    assert None is lane.cut(0)
    lane.settle(1, 0, 0)
    lane.fenced = True
    assert None is lane.cut(0)


def test_the_age_of_the_oldest_news_counts_from_its_settle():
    """Dispatch stops while completed settles are older than an interval + 1 s."""
    lane = lane_of()
    acked(lane)
    assert None is lane.log.oldest_unsynced()
    lane.settle(1, 0, 100)
    lane.settle(2, 0, 200)
    append = lane.cut(300)
    lane.settle(3, 0, 400)
    assert (100, 3) == (lane.log.oldest_unsynced(), lane.log.unsynced_count)
    lane.log.withdraw(append)
    assert (100, 3) == (lane.log.oldest_unsynced(), lane.log.unsynced_count)
    lane.log.acknowledged(lane.cut(500))
    assert (None, 0) == (lane.log.oldest_unsynced(), lane.log.unsynced_count)


def test_a_straggler_below_the_watermark_is_not_named_again():
    """It once made a checkpoint impossible to pack."""
    lane = lane_of()
    acked(lane)
    for sequence in range(1, 11):
        lane.take_in(b"a", sequence, sequence, b"", b"")
    for sequence in (3, 10):
        lane.settle(sequence, 0, 0)
    acked(lane)
    lane.removal.erased(lane.removal.to_erase(10))
    for sequence in (1, 2, 4, 6):
        lane.settle(sequence, 0, 0)
    acked(lane)
    lane.log.checkpoint_due = True
    log = settle_record.fold([settle_record.encode(lane.cut(0).record)])
    assert (4, [(6, 6)]) == (log.settled.watermark, list(log.settled.above()))


def test_what_is_settled_while_deletes_are_under_way_is_neither_forgotten_nor_left():
    """It once was missing from the next checkpoint, and so was handled again after a crash."""
    lane = lane_of()
    acked(lane)
    for sequence in range(1, 8):
        lane.take_in(b"a", sequence, sequence, b"", b"")
    for sequence in (3, 6):
        lane.settle(sequence, 0, 0)
    acked(lane)
    batch = lane.removal.to_erase(10)
    lane.settle(5, 0, 0)
    acked(lane)
    lane.removal.erased(batch)
    assert ([3, 6], [5]) == (batch, lane.removal.to_erase(10))
    lane.log.checkpoint_due = True
    assert 5 in settle_record.fold([settle_record.encode(lane.cut(0).record)]).settled


# ---- identity


def test_a_purge_that_was_still_to_come_is_no_sign_of_another_stream():
    """Between the log's ack and the purge an owner may die: nothing is handed out again for that."""
    lane = lane_of()
    for sequence in (1, 2, 3):
        lane.take_in(b"a", sequence, sequence, b"", b"")
        lane.settle(sequence, 0, 0)
    log = settle_record.fold([settle_record.encode(acked(lane).record)])
    successor = FedLane(LANE, 2, MemoryBudget(), Host(opened))
    state = LaneState("s", 1, 4, 4)
    assert successor.recover(log, state, 3)
    assert (3, True) == (successor.position, successor.same(state, 4))


def test_a_stream_that_lost_what_was_not_fed_yet_is_another_one():
    """The catch-up's end would take the new messages for deleted ones."""
    lane = FedLane(LANE, 1, MemoryBudget(), Host(opened))
    lane.recover(settle_record.LogState(), LaneState("s", 1, 9, 90), None)
    assert not lane.same(LaneState("s", 1, 5, 50), None)
    assert not lane.same(LaneState("s", 1, 12, 120), 91)
    assert lane.same(LaneState("s", 1, 12, 120), 90)


def test_a_message_that_belongs_nowhere_is_not_kept():
    lane = lane_of(open_queue=lambda *_: None)
    lane.take_in(b"stray", 1, 1, b"", b"")
    assert (1, {}) == (lane.position, lane.queues)
