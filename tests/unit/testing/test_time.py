"""What time does in a test: retries, delays, expiry, quota, and handlers that sleep."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenlane import Evenlane, Pause, Retry
from evenlane.testing import TestApp

START = datetime(2026, 1, 1, tzinfo=UTC)


class Times:
    """A handler that notes when it was called (s since START), and fails as long as `fails` says so."""

    def __init__(self, fails=lambda _message: None):
        self.app: TestApp | None = None
        self.at: list[float] = []
        self.bodies: list[bytes] = []
        self._fails = fails

    async def __call__(self, message):
        self.at.append(round((self.app.now - START).total_seconds(), 3))
        self.bodies.append(message.body)
        error = self._fails(message)
        if error is not None:
            raise error


def app(handler, topics=None, **options):
    made = TestApp(handler, topics=topics or {"acme": {"qps": 1000}}, start=START, **options)
    handler.app = made
    return made


async def test_retries_come_by_the_backoff_of_the_topic():
    handler = Times(lambda _: ValueError("no"))
    backoff = {"base": 2, "factor": 3, "cap": 1000, "jitter": 0}
    async with app(handler, {"acme": {"qps": 10, "max_attempts": 4, "backoff": backoff}}) as t:
        await t.put("acme", b"x", id="m1")
        await t.run_until_idle()
        assert [0] == handler.at
        await t.advance(100)
        assert [0, 2, 8, 26] == handler.at
        [dead] = t.dead_letters
        assert ("acme", "m1", "failed 4 times", 4, b"x") == (
            dead.project, dead.id, dead.reason, dead.attempts, dead.body,
        )  # fmt: skip
        assert "ValueError: no" in dead.error
        assert ["no"] * 4 == [str(each.error) for each in t.failed]


async def test_a_retry_of_a_retry_runs_within_one_advance_at_its_own_instant():
    handler = Times(lambda message: {1: Retry(after=1), 2: Retry(after=2)}.get(message.attempt))
    async with app(handler) as t:
        await t.put("acme", b"x")
        await t.advance(10)
        assert [0, 1, 3] == handler.at
        assert [3] == [message.attempt for message in t.handled]
        assert START + timedelta(seconds=10) == t.now


@settings(max_examples=30)
@given(delays=st.lists(st.integers(0, 8_000), min_size=1, max_size=8, unique=True))
def test_delayed_messages_run_in_the_order_of_their_due_times_and_not_early(delays):
    async def run():
        handler = Times()
        async with app(handler) as t:
            for delay in delays:
                await t.put("acme", b"%d" % delay, delay=delay)
            await t.advance(8_000)
        assert sorted(delays) == [int(body) for body in handler.bodies]
        late = [at - delay for at, delay in zip(handler.at, sorted(delays), strict=True)]
        assert max(late) <= 0.01
        assert min(late) >= 0

    asyncio.run(run())


async def test_messages_expire_after_their_time_to_live():
    handler = Times()
    topics = {"acme": {"qps": 1, "burst": 1, "dead_letter_expired": True}}
    async with app(handler, topics) as t:
        for number in range(5):
            await t.put("acme", b"x", id=f"m{number}", ttl=2.5)
        await t.advance(60)
        assert [0, 1, 2] == handler.at
        assert [("m3", "expired"), ("m4", "expired")] == [(each.id, each.reason) for each in t.dead_letters]


@settings(max_examples=40)
@given(qps=st.sampled_from([1, 2, 4, 5, 10, 20, 50]), burst=st.integers(1, 20), seconds=st.integers(0, 12))
def test_a_quota_lets_exactly_its_burst_and_then_its_rate_start(qps, burst, seconds):
    """The oracle counts: a token bucket that was full gives `burst` at once, and `qps` in each second."""

    async def run():
        handler = Times()
        async with app(handler, {"acme": {"qps": qps, "burst": burst, "groups": 1}}) as t:
            for _ in range(burst + qps * (seconds + 1)):
                await t.put("acme", b"x")
            await t.run_until_idle()
            assert burst == len(handler.at)
            await t.advance(seconds)
        by_second = Counter(int(-(-at // 1)) for at in handler.at[burst:])
        assert dict.fromkeys(range(1, seconds + 1), qps) == {
            second: n for second, n in by_second.items() if second <= seconds
        }

    asyncio.run(run())


async def test_a_handler_that_sleeps_takes_time_of_the_test_only():
    async def handle(_message):
        await asyncio.sleep(3)

    began = time.monotonic()
    async with TestApp(handle, topics={"acme": {"qps": 100}}, start=START) as t:
        await t.put("acme", b"x")
        await t.run_until_idle()
        assert 1 == len(t.handled)
        assert START + timedelta(seconds=3) == t.now
    assert time.monotonic() - began < 2


async def test_a_handler_that_sleeps_for_longer_than_ack_wait_is_cancelled():
    cancelled = []

    async def handle(message):
        try:
            await asyncio.sleep(60 if message.attempt == 1 else 0)
        except asyncio.CancelledError:
            cancelled.append(message.id)
            raise

    backoff = {"base": 10, "jitter": 0}
    async with TestApp(handle, topics={"acme": {"qps": 100, "ack_wait": 5, "backoff": backoff}}, start=START) as t:
        await t.put("acme", b"x", id="slow")
        await t.run_until_idle()
        assert ["slow"] == cancelled
        assert ["no sign of life for longer than ack_wait"] == [str(each.error) for each in t.failed]
        assert timedelta(seconds=5) <= t.now - START <= timedelta(seconds=5.3)
        assert 1 == t.backlog("acme")
        await t.advance(10.2)
        assert [2] == [message.attempt for message in t.handled]


async def test_a_pause_ends_with_time():
    handler = Times(lambda message: None if handler.at[-1] else Pause(30, "down"))
    async with app(handler) as t:
        await t.put("acme", b"x")
        await t.run_until_idle()
        assert "down" in t.why("acme")["notes"][0]
        await t.advance(60)
        assert [0, 30] == handler.at
        assert [1] == [message.attempt for message in t.handled]


async def test_a_test_may_sleep_in_real_time_between_its_calls():
    async with app(Times()) as t:
        await asyncio.wait_for(asyncio.sleep(0.01), 5)
        assert START == t.now


async def test_the_clock_of_the_process_is_restored_even_after_an_error():
    loop = asyncio.get_running_loop()
    before = loop.time()

    async def fail():
        async with app(Times()) as t:
            await t.advance(10_000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert 0 <= loop.time() - before < 60
    await asyncio.wait_for(asyncio.sleep(0.001), 5)


async def test_a_timer_from_outside_waits_and_then_goes_on():
    rung = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, rung.set)
    async with app(Times()) as t:
        await t.advance(3_600)
        assert not rung.is_set()
    await asyncio.wait_for(rung.wait(), 5)


async def test_a_test_of_a_month_takes_milliseconds():
    handler = Times()
    async with app(handler, {"acme": {"qps": 1000, "ttl": 5_000_000}}) as t:
        began = time.process_time()
        await t.advance(30 * 86_400)
        await t.put("acme", b"x", delay=5)
        await t.advance(10)
        assert [30 * 86_400 + 5] == handler.at
        assert time.process_time() - began < 1


async def test_background_tasks_of_an_application_run_at_their_own_instants():
    rung = []

    async def lifespan(_app):
        async def tick():
            while True:
                await asyncio.sleep(600)
                rung.append((t.now - START).total_seconds())

        task = asyncio.create_task(tick())
        yield
        task.cancel()

    made = Evenlane(lifespan=lifespan)
    made.handler(Times())
    async with TestApp(made, topics={"acme": {"qps": 10}}, start=START) as t:
        await t.advance(1_900)
    assert 3 == len(rung)
    assert [600, 1200, 1800] == [round(at, -1) for at in rung]
