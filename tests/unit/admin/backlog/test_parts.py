"""The pure parts of the backlog's commands."""

import pytest

from evenlane.engine.admin.backlog.peek import SHOWN_BYTES, _begin
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.queue.delay_heap import DelayHeap
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import message_id
from evenlane.engine.core.wire.queue_subjects import parse

TICK = 10_000_000


def test_delayed_messages_are_removed_up_to_a_sequence():
    delayed = DelayHeap()
    for sequence in (3, 1, 2, 5):
        delayed.add(b"a", sequence, (10 - sequence) * TICK)
    delayed.add(b"b", 4, 20 * TICK)
    assert {1, 2, 3} == set(delayed.remove(b"a", 3))
    assert (2, 5 * TICK) == (len(delayed), delayed.next_due())
    assert [] == delayed.remove(b"a", 3)
    assert [(b"a", 5), (b"b", 4)] == list(delayed.release(30 * TICK, 10))


def test_a_subject_that_was_removed_whole_is_never_due():
    delayed = DelayHeap()
    delayed.add(b"a", 1, TICK)
    assert [1] == delayed.remove(b"a", 1)
    assert delayed.next_due() is None
    assert [] == list(delayed.release(9 * TICK, 10))
    assert [] == delayed.remove(b"unknown", 9)


def test_only_the_queues_subjects_are_the_backlog():
    """What belongs to no queue goes to the dead letters, and is nobody's to peek at or to purge."""
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
def test_an_id_is_the_same_over_all_attempts(headers, expected):
    assert expected == message_id("acme", "LANES_online_3", 8, 77, h.encode(headers))


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", {"body_start": ""}),
        (b"x" * 200, {"body_start": "x" * SHOWN_BYTES}),
        (b"\xff", {"body_start_base64": "/w=="}),
        (b"x" * (SHOWN_BYTES - 1) + b"\xc3\xa4", {"body_start": "x" * (SHOWN_BYTES - 1)}),
        (b"x" * (SHOWN_BYTES - 1) + b"\xc3", {"body_start_base64": "eHh4" * 26 + "eMM="}),
    ],
)
def test_the_beginning_of_a_body(body, shown):
    assert shown == _begin(body)
