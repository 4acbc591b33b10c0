"""The protocol of one pull consumer: what follows from each event, as tables (E12)."""

import pytest

from evenlane.engine.store.byte_lag import ByteLag
from evenlane.engine.store.jetstream.byte_budget import FeedBudget
from evenlane.engine.store.jetstream.pull_consumer import (
    FIRST_BYTES,
    SILENT_S,
    CaughtUp,
    Ended,
    EndReason,
    Pull,
    PullConsumer,
    Stage,
)

TOTAL, LARGEST = 32 << 20, 1 << 20
SUBJECT = b"lanes.online.0.acme.0.mid"
SMALL, TURN = b"_INBOX.feed.S.c.small", b"_INBOX.feed.S.c.turn"
NEXT = Pull(Stage.SMALL, FeedBudget(TOTAL, LARGEST).small)
LARGE = Pull(Stage.TURN, LARGEST)
NO_MORE = b"NATS/1.0 404 No Messages\r\n\r\n"
EXPIRED = b"NATS/1.0 408 Request Timeout\r\n\r\n"
USED_UP = b"NATS/1.0 409 Message Size Exceeds MaxBytes\r\n\r\n"
BATCH = b"NATS/1.0 409 Batch Completed\r\n\r\n"


def heartbeat(last):
    return b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: 9\r\n\r\n" % last


class Consumer(PullConsumer):
    """One with what it did: `actions` since the last look, `taken` by sequence."""

    __slots__ = ("actions", "taken")

    def __init__(self, last=0, budget=None, lag=None, **options):
        self.actions, self.taken = [], []
        super().__init__(
            sink=lambda _subject, sequence, *_: self.taken.append(sequence),
            perform=self.actions.append,
            budget=budget or FeedBudget(TOTAL, LARGEST),
            lag=lag or ByteLag(),
            last=last,
            **options,
        )

    def look(self):
        actions = self.actions.copy()
        self.actions.clear()
        return actions

    def reason(self):
        """Why it ended, which is the last thing that it did."""
        assert Stage.ENDED is self.stage
        return self.look()[-1].reason

    def message(self, number, sequence=None, pending=9, size=100, headers=b""):
        """Message `number` of the consumer, of `size` bytes as the server counts."""
        reply = b"$JS.ACK.S.c.1.%d.%d.7.%d" % (sequence or number, number, pending)
        self.message_received(SUBJECT, reply, headers, b"x" * (size - len(SUBJECT) - len(reply) - len(headers)))

    def status(self, headers, subject=SMALL):
        self.message_received(subject, b"", headers, b"")

    def seconds(self, count, begin=0.0):
        for second in range(1, count + 1):
            self.second_passed(begin + second)


def running(**options):
    """A consumer whose first pull is open, with 9 messages to come."""
    consumer = Consumer(**options)
    consumer.created(9, 0.0)
    consumer.look()
    return consumer


def flooded():
    """A lag that leaves bodies."""
    lag = ByteLag()
    for _ in range(4):
        lag.came(1, 1 << 20, 100)
    assert lag.leaves_bodies
    return lag


def busy():
    """A budget without room for a turn; `return_turn` makes room for one."""
    budget = FeedBudget(2, 1)
    budget.ask(lambda: True)
    return budget


class TestBegin:
    @pytest.mark.parametrize(
        ("pending", "options", "actions"),
        [
            (9, {}, [Pull(Stage.SMALL, FIRST_BYTES)]),
            (9, {"budget": FeedBudget(10_000, 100)}, [Pull(Stage.SMALL, 5_000)]),
            (0, {}, [CaughtUp(), Pull(Stage.SMALL, FIRST_BYTES)]),
            (0, {"awaits_end": False}, [Pull(Stage.SMALL, FIRST_BYTES)]),
            (9, {"until": 5}, [Pull(Stage.SMALL, FIRST_BYTES)]),
            (0, {"until": 5}, [Ended(EndReason.COMPLETE, "all that was asked for has come")]),
            (9, {"until": 5, "last": 5}, [Ended(EndReason.COMPLETE, "all that was asked for has come")]),
        ],
    )
    def test_what_follows_when_it_is_created(self, pending, options, actions):
        consumer = Consumer(**options)
        consumer.created(pending, 0.0)
        assert actions == consumer.look()

    @pytest.mark.parametrize("until", [None, 5])
    def test_one_that_is_disturbed_meanwhile_begins_nothing(self, until):
        consumer = Consumer(until=until)
        consumer.end(EndReason.DISTURBED, "a test")
        assert [Ended(EndReason.DISTURBED, "a test")] == consumer.look()
        consumer.created(0, 0.0)
        assert [] == consumer.look()


class TestMessages:
    def test_they_are_delivered_whatever_sequences_are_missing(self):
        """E12: what is deleted leaves no gap in the consumer's own count."""
        consumer = running()
        for number, sequence in enumerate((3, 4, 7, 8, 10), 1):
            consumer.message(number, sequence)
        assert ([3, 4, 7, 8, 10], 10, 5, []) == (consumer.taken, consumer.last, consumer.received, consumer.look())

    def test_with_a_domain_in_the_reply(self):
        consumer = running()
        consumer.message_received(SUBJECT, b"$JS.ACK.hub.aBcD.S.c.1.4.1.7.0", b"", b"")
        assert [4] == consumer.taken

    def test_the_last_one_that_was_there_is_said_once(self):
        consumer = running()
        for number, pending in enumerate((1, 0, 1, 0), 1):
            consumer.message(number, pending=pending)
        assert ([CaughtUp()], [1, 2, 3, 4]) == (consumer.look(), consumer.taken)

    @pytest.mark.parametrize(
        ("messages", "taken"),
        [
            ([(4, 9), (5, 9)], [4, 5]),
            ([(4, 9), (7, 9)], [4]),  # 5 is deleted
            ([(3, 1), (4, 0)], [3, 4]),  # 5 is deleted, and nothing came behind it
        ],
    )
    def test_it_ends_behind_the_last_one_that_was_asked_for(self, messages, taken):
        consumer = running(until=5)
        for number, (sequence, pending) in enumerate(messages, 1):
            consumer.message(number, sequence, pending)
        assert (taken, taken[-1], EndReason.COMPLETE) == (consumer.taken, consumer.last, consumer.reason())

    def test_a_sink_that_disturbs_its_feed_has_the_last_word(self):
        consumer = running()
        consumer.sink = lambda *_: consumer.end(EndReason.DISTURBED)
        consumer.message(1, pending=0)
        assert (EndReason.DISTURBED, 1) == (consumer.reason(), consumer.last)


class TestEnd:
    @pytest.mark.parametrize(
        ("event", "reason"),
        [
            (lambda it: it.message(3), EndReason.GAP),
            (lambda it: it.message(1), EndReason.GAP),
            (lambda it: it.message_received(SUBJECT, b"$JS.ACK.S.c.1.2.x.7.0", b"", b""), EndReason.FOREIGN),
            (lambda it: it.message_received(SUBJECT, b"$JS.ACK.S.c.1.2", b"", b""), EndReason.FOREIGN),
            (lambda it: it.status(heartbeat(2)), EndReason.MISSED),
            (lambda it: it.status(b"NATS/1.0 409 Consumer Deleted\r\n\r\n"), EndReason.STATUS),
            (lambda it: it.status(b"NATS/1.0 503\r\n\r\n"), EndReason.STATUS),
            (lambda it: it.end(EndReason.DISTURBED), EndReason.DISTURBED),
            (lambda it: it.seconds(14), EndReason.SILENT),
        ],
    )
    def test_whatever_is_wrong_ends_it(self, event, reason):
        """After the first message."""
        consumer = running()
        consumer.message(1)
        event(consumer)
        assert ([1], 1, reason) == (consumer.taken, consumer.last, consumer.reason())

    @pytest.mark.parametrize(
        ("event", "why"),
        [
            (lambda it: it.message(3), "a gap: message 3 of the consumer came instead of 1"),
            (lambda it: it.status(b"NATS/1.0 409 Consumer Deleted\r\n\r\n"), "409 Consumer Deleted"),
            (lambda it: it.seconds(14), "no heartbeat"),
        ],
    )
    def test_the_log_gets_a_sentence(self, event, why):
        consumer = running()
        event(consumer)
        assert why == consumer.look()[-1].why

    def test_with_an_end_a_heartbeat_says_that_the_rest_is_deleted(self):
        consumer = running(until=5)
        consumer.message(1)
        consumer.status(heartbeat(1))
        assert EndReason.DELETED is consumer.reason()

    @pytest.mark.parametrize(
        "event",
        [
            lambda it: it.created(0, 0.0),
            lambda it: it.message(2),
            lambda it: it.message(1),
            lambda it: it.message_received(SUBJECT, b"", b"", b""),
            lambda it: it.status(NO_MORE),
            lambda it: it.status(USED_UP),
            lambda it: it.status(heartbeat(9)),
            lambda it: it.seconds(60),
            lambda it: it.end(EndReason.CLOSED),
        ],
    )
    def test_after_it_nothing_counts_any_more(self, event):
        consumer = running()
        consumer.message(1)
        consumer.end(EndReason.DISTURBED)
        consumer.look()
        event(consumer)
        assert ([], [1], 1, 1) == (consumer.look(), consumer.taken, consumer.last, consumer.received)


class TestPulls:
    @pytest.mark.parametrize(
        ("statuses", "actions"),
        [
            ([(NO_MORE, SMALL)], [NEXT]),
            ([(EXPIRED, SMALL)], [NEXT]),
            ([(USED_UP, SMALL)], [LARGE]),
            ([(USED_UP, SMALL), (USED_UP, TURN)], [LARGE, LARGE]),
            ([(USED_UP, SMALL), (NO_MORE, TURN)], [LARGE, NEXT]),
            ([(USED_UP, SMALL), (NO_MORE, TURN), (USED_UP, SMALL)], [LARGE, NEXT, LARGE]),
            # of a pull that isn't open any more
            ([(NO_MORE, TURN)], []),
            ([(USED_UP, TURN)], []),
            ([(USED_UP, SMALL), (USED_UP, SMALL)], [LARGE]),
            ([(USED_UP, SMALL), (EXPIRED, SMALL)], [LARGE]),
            # that say nothing of a pull
            ([(BATCH, SMALL), (heartbeat(0), SMALL)], []),
        ],
    )
    def test_which_pull_follows_a_status(self, statuses, actions):
        consumer = running()
        for headers, subject in statuses:
            consumer.status(headers, subject)
        assert actions == consumer.look()

    @pytest.mark.parametrize(("sizes", "actions"), [((1_000,), []), ((384, 16_000), [LARGE]), ((384, 15_999), [])])
    def test_a_pull_that_is_filled_to_its_last_byte_is_over(self, sizes, actions):
        """The server says nothing of it."""
        assert sum((384, 16_000)) == FIRST_BYTES
        consumer = running()
        for number, size in enumerate(sizes, 1):
            consumer.message(number, size=size)
        assert actions == consumer.look()

    def test_a_patient_one_pulls_little_where_it_can(self):
        budget = FeedBudget(TOTAL, LARGEST)
        consumer = running(until=9, budget=budget)
        consumer.message(1)
        consumer.status(USED_UP)
        assert [Pull(Stage.TURN, budget.patient_turn)] == consumer.look()

    def test_a_patient_one_pulls_eight_times_as_much_where_nothing_fitted(self):
        consumer = running(until=9)
        for subject, size in ((SMALL, 8 * FIRST_BYTES), (TURN, 64 * FIRST_BYTES), (TURN, LARGEST)):
            consumer.status(USED_UP, subject)
            assert [Pull(Stage.TURN, min(size, LARGEST))] == consumer.look()


class TestTurns:
    def test_without_one_there_is_no_pull_and_silence_says_nothing(self):
        consumer = running(budget=busy())
        consumer.status(USED_UP)
        assert (Stage.WAITING, []) == (consumer.stage, consumer.look())
        consumer.seconds(60)
        assert [] == consumer.look()
        consumer.budget.return_turn()
        assert (Stage.TURN, [Pull(Stage.TURN, 1)]) == (consumer.stage, consumer.look())
        consumer.seconds(12, begin=60.0)
        assert [] == consumer.look()
        consumer.seconds(2, begin=72.0)
        assert EndReason.SILENT is consumer.reason()

    def test_one_that_has_ended_takes_none(self):
        consumer, next_one = (running(budget=budget) for budget in [busy()] * 2)
        consumer.status(USED_UP)
        next_one.status(USED_UP)
        consumer.end(EndReason.DISTURBED)
        consumer.budget.return_turn()
        assert ([Pull(Stage.TURN, 1)], 1) == (next_one.look(), len(consumer.look()))

    @pytest.mark.parametrize("over", [lambda it: it.end(EndReason.DISTURBED), lambda it: it.status(NO_MORE, TURN)])
    def test_it_is_given_back_whenever_it_ends(self, over):
        budget = FeedBudget(2, 1)
        consumer, next_one = running(budget=budget), running(budget=budget)
        consumer.status(USED_UP)
        next_one.status(USED_UP)
        assert [] == next_one.look()
        over(consumer)
        assert [Pull(Stage.TURN, 1)] == next_one.look()

    def test_many_that_end_as_soon_as_they_have_one_do_so_one_after_another(self):
        """When the connection is gone no pull can be sent; a thousand calls deep would be an error."""
        budget = busy()
        consumers = [running(budget=budget) for _ in range(1_000)]
        for consumer in consumers:
            consumer.perform = lambda action, it=consumer: isinstance(action, Pull) and it.end(EndReason.DISCONNECTED)
            consumer.status(USED_UP)
        budget.return_turn()
        assert {Stage.ENDED} == {consumer.stage for consumer in consumers}


class TestSilence:
    def test_it_counts_from_the_last_sign_of_life(self):
        consumer = running()
        consumer.seconds(12)
        consumer.status(heartbeat(0))
        consumer.seconds(12, begin=12.0)
        consumer.message(1)
        consumer.seconds(12, begin=24.0)
        assert [] == consumer.look()
        consumer.seconds(2, begin=36.0)
        assert EndReason.SILENT is consumer.reason()

    def test_what_came_in_a_block_of_the_loop_is_read_first(self):
        consumer = running()
        consumer.second_passed(61.0, late=60.0)
        assert [] == consumer.look()
        consumer.second_passed(60.0 + SILENT_S + 0.1)
        assert EndReason.SILENT is consumer.reason()

    def test_one_that_is_being_created_is_silent(self):
        consumer = Consumer()
        consumer.seconds(60)
        assert [] == consumer.look()


class TestBodies:
    def test_where_they_are_left_the_heads_come(self):
        heads = []

        def take_head(_subject, sequence, _at, _headers, size):
            heads.append((sequence, size))
            return True

        consumer = running(lag=flooded(), on_head=take_head)
        assert consumer.headless
        consumer.message(1, 4, headers=b"NATS/1.0\r\nNats-Msg-Size: 70000\r\n\r\n", size=200)
        consumer.message(2, 5, headers=b"NATS/1.0\r\nNats-Msg-Size: 99999999\r\n\r\n", size=200)
        assert ([], [(4, 70_000), (5, LARGEST)], 5) == (consumer.taken, heads, consumer.last)

    def test_a_message_whose_body_is_wanted_comes_again_with_it(self):
        lag = flooded()
        consumer = running(lag=lag, on_head=lambda *_: False)
        consumer.message(1, 4)
        assert (EndReason.BODIES, 3, False) == (consumer.reason(), consumer.last, lag.leaves_bodies)

    def test_a_lag_ends_a_consumer_that_brings_them(self):
        """Before it takes another turn; the message itself is delivered."""
        lag = ByteLag()
        consumer = running(lag=lag, on_head=lambda *_: True)
        for _ in range(3):
            lag.came(1, 1 << 20, 100)
        consumer.message(1, pending=10_000_000, size=FIRST_BYTES)
        assert ([LARGE], [1]) == (consumer.look(), consumer.taken), "small messages are no lag"
        for _ in range(3):
            lag.came(1, 1 << 20, 100)
        consumer.message(2, pending=100, size=LARGEST)
        assert ([1, 2], EndReason.BODIES, True) == (consumer.taken, consumer.reason(), lag.leaves_bodies)

    def test_without_a_taker_of_heads_nothing_is_left(self):
        lag = ByteLag()
        consumer = running(lag=lag)
        for _ in range(3):
            lag.came(1, 1 << 20, 100)
        consumer.status(USED_UP)
        consumer.message(1, pending=100, size=LARGEST)
        assert ([LARGE, LARGE], False) == (consumer.look(), lag.leaves_bodies)

    def test_the_end_of_a_flood_ends_one_without_them(self):
        consumer = running(lag=flooded(), on_head=lambda *_: True)
        consumer.seconds(3)
        assert EndReason.BODIES is consumer.reason()
