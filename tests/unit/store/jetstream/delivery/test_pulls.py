"""The pulls of one pull consumer: sizes, turns, silence, and bodies left in the stream (E12)."""

import pytest

from evenlane.engine.store.byte_lag import ByteLag
from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget
from evenlane.engine.store.jetstream.delivery.pull_consumer import FIRST_BYTES, SILENT_S, EndReason, Pull, PullStage
from tests.unit.store.jetstream.delivery.recorded_consumer import (
    BATCH,
    EXPIRED,
    LARGEST,
    NO_MORE,
    SMALL,
    TOTAL,
    TURN,
    USED_UP,
    Consumer,
    busy,
    flooded,
    heartbeat,
    running,
)

NEXT = Pull(PullStage.SMALL, FeedBudget(TOTAL, LARGEST).small)
LARGE = Pull(PullStage.TURN, LARGEST)


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
            # statuses of a pull that isn't open any more
            ([(NO_MORE, TURN)], []),
            ([(USED_UP, TURN)], []),
            ([(USED_UP, SMALL), (USED_UP, SMALL)], [LARGE]),
            ([(USED_UP, SMALL), (EXPIRED, SMALL)], [LARGE]),
            # statuses that don't concern a pull
            ([(BATCH, SMALL), (heartbeat(0), SMALL)], []),
        ],
    )
    def test_pull_after_status(self, statuses, actions):
        consumer = running()
        for headers, subject in statuses:
            consumer.status(headers, subject)
        assert actions == consumer.look()

    @pytest.mark.parametrize(("sizes", "actions"), [((1_000,), []), ((384, 16_000), [LARGE]), ((384, 15_999), [])])
    def test_pull_filled_to_last_byte_is_over(self, sizes, actions):
        """The server sends no status for it."""
        assert sum((384, 16_000)) == FIRST_BYTES
        consumer = running()
        for number, size in enumerate(sizes, 1):
            consumer.message(number, size=size)
        assert actions == consumer.look()

    def test_patient_consumer_pulls_small_turns(self):
        budget = FeedBudget(TOTAL, LARGEST)
        consumer = running(until=9, budget=budget)
        consumer.message(1)
        consumer.status(USED_UP)
        assert [Pull(PullStage.TURN, budget.patient_turn)] == consumer.look()

    def test_patient_pull_grows_eightfold_when_no_message_fits(self):
        consumer = running(until=9)
        for subject, size in ((SMALL, 8 * FIRST_BYTES), (TURN, 64 * FIRST_BYTES), (TURN, LARGEST)):
            consumer.status(USED_UP, subject)
            assert [Pull(PullStage.TURN, min(size, LARGEST))] == consumer.look()


class TestTurns:
    def test_waiting_consumer_neither_pulls_nor_times_out(self):
        consumer = running(budget=busy())
        consumer.status(USED_UP)
        assert (PullStage.WAITING, []) == (consumer.stage, consumer.look())
        consumer.seconds(60)
        assert [] == consumer.look()
        consumer.budget.return_turn()
        assert (PullStage.TURN, [Pull(PullStage.TURN, 1)]) == (consumer.stage, consumer.look())
        consumer.seconds(12, begin=60.0)
        assert [] == consumer.look()
        consumer.seconds(2, begin=72.0)
        assert EndReason.SILENT is consumer.reason()

    def test_ended_consumer_takes_no_turn(self):
        consumer, next_one = (running(budget=budget) for budget in [busy()] * 2)
        consumer.status(USED_UP)
        next_one.status(USED_UP)
        consumer.end(EndReason.DISTURBED)
        consumer.budget.return_turn()
        assert ([Pull(PullStage.TURN, 1)], 1) == (next_one.look(), len(consumer.look()))

    @pytest.mark.parametrize("over", [lambda it: it.end(EndReason.DISTURBED), lambda it: it.status(NO_MORE, TURN)])
    def test_turn_is_returned_at_end_of_pull_or_consumer(self, over):
        budget = FeedBudget(2, 1)
        consumer, next_one = running(budget=budget), running(budget=budget)
        consumer.status(USED_UP)
        next_one.status(USED_UP)
        assert [] == next_one.look()
        over(consumer)
        assert [Pull(PullStage.TURN, 1)] == next_one.look()

    def test_consumers_that_end_in_their_turn_do_not_recurse(self):
        """Without a connection no pull can be sent; recursion would be a thousand calls deep."""
        budget = busy()
        consumers = [running(budget=budget) for _ in range(1_000)]
        for consumer in consumers:
            consumer.replace(
                perform=lambda action, it=consumer: isinstance(action, Pull) and it.end(EndReason.DISCONNECTED)
            )
            consumer.status(USED_UP)
        budget.return_turn()
        assert {PullStage.ENDED} == {consumer.stage for consumer in consumers}


class TestSilence:
    def test_silence_counts_from_last_message_or_heartbeat(self):
        consumer = running()
        consumer.seconds(12)
        consumer.status(heartbeat(0))
        consumer.seconds(12, begin=12.0)
        consumer.message(1)
        consumer.seconds(12, begin=24.0)
        assert [] == consumer.look()
        consumer.seconds(2, begin=36.0)
        assert EndReason.SILENT is consumer.reason()

    def test_blocked_loop_is_no_silence(self):
        consumer = running()
        consumer.on_second(61.0, late=60.0)
        assert [] == consumer.look()
        consumer.on_second(60.0 + SILENT_S + 0.1)
        assert EndReason.SILENT is consumer.reason()

    def test_consumer_in_creation_does_not_time_out(self):
        consumer = Consumer()
        consumer.seconds(60)
        assert [] == consumer.look()


class TestBodies:
    def test_lagging_consumer_delivers_heads(self):
        heads = []

        def take_head(_subject, sequence, _at, _headers, size):
            heads.append((sequence, size))
            return True

        consumer = running(lag=flooded(), on_head=take_head)
        assert consumer.headless
        consumer.message(1, 4, headers=b"NATS/1.0\r\nNats-Msg-Size: 70000\r\n\r\n", size=200)
        consumer.message(2, 5, headers=b"NATS/1.0\r\nNats-Msg-Size: 99999999\r\n\r\n", size=200)
        assert ([], [(4, 70_000), (5, LARGEST)], 5) == (consumer.taken, heads, consumer.last)

    def test_refused_head_comes_again_with_body(self):
        lag = flooded()
        consumer = running(lag=lag, on_head=lambda *_: False)
        consumer.message(1, 4)
        assert (EndReason.BODIES, 3, False) == (consumer.reason(), consumer.last, lag.leaves_bodies)

    def test_lag_ends_consumer_with_bodies(self):
        """It ends before it takes another turn, and the message is delivered."""
        lag = ByteLag()
        consumer = running(lag=lag, on_head=lambda *_: True)
        for _ in range(3):
            lag.note_pull(1, 1 << 20, 100)
        consumer.message(1, pending=10_000_000, size=FIRST_BYTES)
        assert ([LARGE], [1]) == (consumer.look(), consumer.taken), "small messages are no lag"
        for _ in range(3):
            lag.note_pull(1, 1 << 20, 100)
        consumer.message(2, pending=100, size=LARGEST)
        assert ([1, 2], EndReason.BODIES, True) == (consumer.taken, consumer.reason(), lag.leaves_bodies)

    def test_consumer_without_head_sink_always_fetches_bodies(self):
        lag = ByteLag()
        consumer = running(lag=lag)
        for _ in range(3):
            lag.note_pull(1, 1 << 20, 100)
        consumer.status(USED_UP)
        consumer.message(1, pending=100, size=LARGEST)
        assert ([LARGE, LARGE], False) == (consumer.look(), lag.leaves_bodies)

    def test_end_of_flood_ends_consumer_of_heads(self):
        consumer = running(lag=flooded(), on_head=lambda *_: True)
        consumer.seconds(3)
        assert EndReason.BODIES is consumer.reason()
