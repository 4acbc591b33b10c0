"""Pure parts of the backlog commands."""

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.queue.delay_heap import DelayHeap
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import message_id
from evenlane.engine.core.wire.queue_subjects import parse

TICK = 10_000_000


def test_delay_heap_removes_messages_up_to_a_sequence():
    delayed = DelayHeap()
    for sequence in (3, 1, 2, 5):
        delayed.add(b"a", sequence, (10 - sequence) * TICK)
    delayed.add(b"b", 4, 20 * TICK)
    assert {1, 2, 3} == set(delayed.remove(b"a", 3))
    assert (2, 5 * TICK) == (len(delayed), delayed.next_due())
    assert [] == delayed.remove(b"a", 3)
    assert [(b"a", 5), (b"b", 4)] == list(delayed.release(30 * TICK, 10))


def test_removed_subject_is_never_due():
    delayed = DelayHeap()
    delayed.add(b"a", 1, TICK)
    assert [1] == delayed.remove(b"a", 1)
    assert delayed.next_due() is None
    assert [] == list(delayed.release(9 * TICK, 10))
    assert [] == delayed.remove(b"unknown", 9)


def test_only_subjects_of_queues_are_backlog():
    """Messages on other subjects become dead letters."""
    counts = {
        "later.online.3.acme.7.mid.500": 2, "later.online.3.acme.7.urgent.500": 1,
        "later.online.3.acme.x.mid.500": 1, "later.online.3.acme.7.mid.soon": 1, "later.online.3.acme.07.mid.5": 1,
    }  # fmt: skip
    (subject,) = parse(LaneId("later", 3), counts, 9, ("high", "mid"))
    assert (7, "mid", 500, 2, 9) == (subject.group, subject.priority, subject.hour, subject.held, subject.last)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, "LANES_online_3-8-77"),
        ({h.ID: "acme:order:1"}, "order:1"),
        ({h.ID: "acme:order:1:LANES_online_3:4:1", h.ORIGIN: "LANES_online_3:4"}, "order:1"),
        ({h.ID: "by-hand"}, "by-hand"),
    ],
)
def test_message_id_is_the_same_in_all_attempts(headers, expected):
    assert expected == message_id("acme", "LANES_online_3", 8, 77, h.encode(headers))
