"""The protocol of one pull consumer: creation, messages and end, as tables of events (E12)."""

import pytest

from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget
from evenlane.engine.store.jetstream.delivery.pull_consumer import (
    FIRST_BYTES,
    CaughtUp,
    Ended,
    EndReason,
    Pull,
    PullStage,
)
from tests.unit.store.jetstream.delivery.recorded_consumer import (
    NO_MORE,
    SUBJECT,
    USED_UP,
    Consumer,
    heartbeat,
    running,
)


class TestBegin:
    @pytest.mark.parametrize(
        ("pending", "options", "actions"),
        [
            (9, {}, [Pull(PullStage.SMALL, FIRST_BYTES)]),
            (9, {"budget": FeedBudget(10_000, 100)}, [Pull(PullStage.SMALL, 5_000)]),
            (0, {}, [CaughtUp(), Pull(PullStage.SMALL, FIRST_BYTES)]),
            (0, {"awaits_end": False}, [Pull(PullStage.SMALL, FIRST_BYTES)]),
            (9, {"until": 5}, [Pull(PullStage.SMALL, FIRST_BYTES)]),
            (0, {"until": 5}, [Ended(EndReason.COMPLETE, "all requested messages have come")]),
            (9, {"until": 5, "last": 5}, [Ended(EndReason.COMPLETE, "all requested messages have come")]),
        ],
    )
    def test_actions_after_creation(self, pending, options, actions):
        consumer = Consumer(**options)
        consumer.on_created(pending, 0.0)
        assert actions == consumer.look()

    @pytest.mark.parametrize("until", [None, 5])
    def test_consumer_disturbed_during_creation_does_nothing(self, until):
        consumer = Consumer(until=until)
        consumer.end(EndReason.DISTURBED, "a test")
        assert [Ended(EndReason.DISTURBED, "a test")] == consumer.look()
        consumer.on_created(0, 0.0)
        assert [] == consumer.look()


class TestMessages:
    def test_messages_are_delivered_across_missing_sequences(self):
        """E12: deleted messages leave no gap in the consumer's own count."""
        consumer = running()
        for number, sequence in enumerate((3, 4, 7, 8, 10), 1):
            consumer.message(number, sequence)
        assert ([3, 4, 7, 8, 10], 10, 5, []) == (consumer.taken, consumer.last, consumer.received, consumer.look())

    def test_reply_subject_may_have_domain(self):
        consumer = running()
        consumer.on_message(SUBJECT, b"$JS.ACK.hub.aBcD.S.c.1.4.1.7.0", b"", b"")
        assert [4] == consumer.taken

    def test_consumer_reports_once_that_it_caught_up(self):
        consumer = running()
        for number, pending in enumerate((1, 0, 1, 0), 1):
            consumer.message(number, pending=pending)
        assert ([CaughtUp()], [1, 2, 3, 4]) == (consumer.look(), consumer.taken)

    @pytest.mark.parametrize(
        ("messages", "taken"),
        [
            ([(4, 9), (5, 9)], [4, 5]),
            ([(4, 9), (7, 9)], [4]),  # 5 is deleted
            ([(3, 1), (4, 0)], [3, 4]),  # 5 is deleted, and no message follows
        ],
    )
    def test_consumer_ends_at_its_last_sequence(self, messages, taken):
        consumer = running(until=5)
        for number, (sequence, pending) in enumerate(messages, 1):
            consumer.message(number, sequence, pending)
        assert (taken, taken[-1], EndReason.COMPLETE) == (consumer.taken, consumer.last, consumer.reason())

    def test_sink_may_disturb_consumer(self):
        consumer = running()
        consumer.replace(sink=lambda *_: consumer.end(EndReason.DISTURBED))
        consumer.message(1, pending=0)
        assert (EndReason.DISTURBED, 1) == (consumer.reason(), consumer.last)


class TestEnd:
    @pytest.mark.parametrize(
        ("event", "reason", "why"),
        [
            (lambda it: it.message(3), EndReason.GAP, "a gap: message 3 of the consumer came instead of 2"),
            (lambda it: it.message(1), EndReason.GAP, "a gap"),
            (lambda it: it.on_message(SUBJECT, b"$JS.ACK.S.c.1.2.x.7.0", b"", b""), EndReason.FOREIGN, ""),
            (lambda it: it.on_message(SUBJECT, b"$JS.ACK.S.c.1.2", b"", b""), EndReason.FOREIGN, ""),
            (lambda it: it.status(heartbeat(2)), EndReason.MISSED, ""),
            (lambda it: it.status(b"NATS/1.0 409 Consumer Deleted\r\n\r\n"), EndReason.STATUS, "409 Consumer Deleted"),
            (lambda it: it.status(b"NATS/1.0 503\r\n\r\n"), EndReason.STATUS, "503"),
            (lambda it: it.end(EndReason.DISTURBED), EndReason.DISTURBED, ""),
            (lambda it: it.seconds(14), EndReason.SILENT, "no heartbeat"),
        ],
    )
    def test_each_fault_ends_consumer_with_reason(self, event, reason, why):
        consumer = running()
        consumer.message(1)
        event(consumer)
        [ended] = consumer.look()
        assert ([1], 1, reason) == (consumer.taken, consumer.last, ended.reason)
        assert ended.why.startswith(why)

    def test_heartbeat_shows_that_remaining_messages_are_deleted(self):
        consumer = running(until=5)
        consumer.message(1)
        consumer.status(heartbeat(1))
        assert EndReason.DELETED is consumer.reason()

    @pytest.mark.parametrize(
        "event",
        [
            lambda it: it.on_created(0, 0.0),
            lambda it: it.message(2),
            lambda it: it.message(1),
            lambda it: it.on_message(SUBJECT, b"", b"", b""),
            lambda it: it.status(NO_MORE),
            lambda it: it.status(USED_UP),
            lambda it: it.status(heartbeat(9)),
            lambda it: it.seconds(60),
            lambda it: it.end(EndReason.CLOSED),
        ],
    )
    def test_events_after_end_are_ignored(self, event):
        consumer = running()
        consumer.message(1)
        consumer.end(EndReason.DISTURBED)
        consumer.look()
        event(consumer)
        assert ([], [1], 1, 1) == (consumer.look(), consumer.taken, consumer.last, consumer.received)
