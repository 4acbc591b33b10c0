"""Catch-up of a lane with a tail feed, and reading ahead of it."""

from hypothesis import example, given
from hypothesis import strategies as st

from evenlane.engine.core.queue.entry import MemoryBudget
from tests.support.lane_owner import Owner, Stream
from tests.unit.core.lane.lanes import acked, lane_of


def test_complete_queue_is_served_during_catch_up():
    """After a takeover, a long backlog delays only its own queue."""
    stream = Stream()
    for _ in range(10):
        stream.put(b"hot")
    owner = Owner(stream, [], 1, MemoryBudget())
    owner.begin_with_a_tail()
    stream.put(b"cold")
    stream.put(b"hot")
    owner.feed_tail()
    owner.feed_tail()
    assert [11] == [entry[1] for entry in owner.queues[b"cold"].ready]
    assert ([], 1) == (list(owner.queues[b"hot"].ready), owner.queues[b"hot"].spilled)


def test_queue_is_complete_with_its_last_message_however_many_are_said_to_be_there():
    """K10, E5: the count has messages that the stream holds for another subscription."""
    stream = Stream()
    for subject in (b"cold", b"hot", b"hot"):
        stream.put(subject)
    owner = Owner(stream, [], 1, MemoryBudget())
    owner.begin_with_a_tail(100_000)
    owner.feed()
    stream.put(b"cold")
    owner.feed_tail()
    assert [1, 4] == [entry[1] for entry in owner.queues[b"cold"].ready]
    assert [b"hot"] == [*owner.lane.lacking]


steps = st.lists(st.sampled_from(["feed", "tail", "take", "head of a", "head of b", "three of a"]), max_size=60)


@given(st.text("ab", min_size=1, max_size=30), st.text("abc", max_size=30), steps, st.integers(0, 2))
@example("aaaaaa", "aaaa", ["feed"] * 5 + ["tail", "feed", "tail", "tail", "take", "take"], 0)  # once handed out twice
def test_each_queue_keeps_its_order_over_catch_up_and_tail(backlog, tail, steps, too_many):
    """L, D: each message is handed out once, even if it was read ahead of the catch-up."""
    stream = Stream()
    for subject in backlog:
        stream.put(subject.encode())
    owner = Owner(stream, [], 1, MemoryBudget(read_ahead=3, index=4))
    owner.begin_with_a_tail(too_many)
    for subject in tail:
        stream.put(subject.encode())
    handed: dict[bytes, list[int]] = {}

    def take_all() -> None:
        for subject, queue in owner.queues.items():
            owner.read(subject, 3)
            while queue.ready:
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


def test_head_read_ahead_is_ready_with_its_body():
    """E5: nine messages of another queue are ahead of it in the lane; the feed skips it when it gets there."""
    stream = Stream()
    for subject in [b"hot"] * 9 + [b"small"]:
        stream.put(subject)
    owner = Owner(stream, [], 1, MemoryBudget())
    owner.begin_with_a_tail()
    owner.read_ahead(b"small")
    assert [(10, b"10")] == [(entry[1], entry[4]) for entry in owner.queues[b"small"].ready]
    assert not owner.lane.is_lacking(b"small")
    while owner.feed():
        pass
    assert [10] == [entry[1] for entry in owner.queues[b"small"].ready]


def test_settled_messages_are_not_read_ahead():
    """A queue whose backlog is settled is complete, and messages of the tail feed are ready at once."""
    stream = Stream()
    for subject in [b"hot", b"small", b"hot", b"small"]:
        stream.put(subject)
    first = Owner(stream, [], 1, MemoryBudget())
    while first.feed():
        pass
    for sequence in (2, 4):
        first.lane.settle(sequence, first.lane.generation, 0)
    first.store(first.lane.next_append(0))
    owner = Owner(stream, first.log, 2, MemoryBudget())
    owner.begin_with_a_tail()
    assert 1 == owner.lane.next_ahead(b"small")
    owner.read_ahead(b"small", 2)
    owner.read_ahead(b"small", 2)
    assert (None, False) == (owner.lane.next_ahead(b"small"), owner.lane.is_lacking(b"small"))
    assert [] == owner.queues[b"small"].ready
    stream.put(b"small")
    owner.feed_tail()
    assert [5] == [entry[1] for entry in owner.queues[b"small"].ready]


def test_deletions_at_the_end_of_catch_up_do_not_pin_the_watermark():
    """E12: such messages are settled."""
    lane = lane_of()
    lane.expect_backlog({"a": 1}, 5)
    lane.take_in(b"a", 1, 1, b"", b"")
    lane.end_catch_up(5)
    lane.settle(1, 0, 0)
    acked(lane)
    assert (5, 5) == (lane.position, lane.removal.durable_watermark)
