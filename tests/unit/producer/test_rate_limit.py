"""Admission at the producer: each topic's puts at its own rate, and nobody behind another's (K6, X2)."""

import asyncio
from collections import Counter

import pytest

from evenlane.engine.core.ports import Receipt
from evenlane.engine.errors import ConfigError, NotAcknowledged
from evenlane.engine.producer.put import Put
from evenlane.engine.producer.rate_limit import limiter_of
from evenlane.engine.producer.tuning import Tuning
from tests.support.until import until


@pytest.fixture
def world(world):
    world.topics.set("slow", '{"qps": 0.01}')
    world.topics.set("fast", '{"qps": 100000}')
    return world


def of(world, project):
    return [message.body for message in world.stored() if f".{project}." in message.subject]


@pytest.mark.parametrize("rate", [0.01, 0.5, 1, 7, 10, 150, 1_000, 123_456.7])
def test_a_limiter_admits_its_rate_from_the_first_second_on(rate):
    """Q: AsyncLimiter(0.5, 1) would admit nothing ever, AsyncLimiter(10, 1) 19 in its first second."""

    class Clock:
        now = 0.0

        def time(self):
            return self.now

        def is_closed(self):
            return False

    limiter, clock = limiter_of(rate), Clock()
    limiter._event_loop = clock
    seconds, steps = max(1.0, 3 / rate), 20_000
    admitted = 0
    for step in range(steps + 1):
        clock.now = seconds * step / steps
        while limiter.has_capacity():
            limiter._level += 1
            admitted += 1
    burst = max(1, rate / 100)
    assert seconds * rate * 0.98 <= admitted <= seconds * rate + burst + 1


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), True, "1"])
def test_a_wrong_admission_is_one_sentence(world, wrong):
    with pytest.raises(ConfigError, match=r"admission .* is not a number above 0: 1\.0 is the topic's own rate"):
        world.producer(admission=wrong)


async def test_a_topic_below_one_a_second_has_its_first_put_at_once_and_the_next_in_time(world):
    """Rates far below 1/s work; what can't go in time was not sent, and is told so."""
    async with world.producer(admission=1.0, timeout=0.2) as producer:
        assert isinstance(await producer.put("slow", b"one"), Receipt)
        with pytest.raises(NotAcknowledged) as error:
            await producer.put("slow", b"two")
        assert (
            "the message for slow was not sent and is not stored: admission holds its topic to 0.01/s,"
            " and its turn did not come in 0.2 s"
        ) == str(error.value)
    assert [b"one"] == of(world, "slow")


async def test_nobody_waits_behind_another_topic_in_one_put_many(world):
    """X2: the slow one's come first, and the fast one's are all stored while they wait."""
    world.topics.set("slow", '{"qps": 10}')
    puts = [Put("slow", b"%d" % n) for n in range(6)] + [Put("fast", b"%d" % n) for n in range(2_000)]
    async with world.producer(admission=1.0) as producer:
        landed = []
        putting = asyncio.create_task(producer.put_each(puts, lambda number, _: landed.append(number)))
        await until(lambda: len(of(world, "fast")) == 2_000)
        assert len(of(world, "slow")) < 6
        await putting
    assert 2_006 == len(set(landed))
    assert [b"%d" % n for n in range(6)] == of(world, "slow")


async def test_what_is_set_aside_is_bounded_and_the_source_waits(world):
    """M: and none of a source of any length runs out of its time only because it was taken early."""
    world.topics.set("slow", '{"qps": 100}')
    taken = []

    def source():
        for number in range(400):
            taken.append(number)
            yield Put("slow", b"%d" % number)

    async with world.producer(admission=1.0, timeout=3.0) as producer:
        putting = asyncio.create_task(producer.put_many(source()))
        await until(lambda: taken)
        await asyncio.sleep(0)
        assert len(taken) <= 153
        assert {Receipt: 400} == Counter(map(type, await putting))


async def test_the_factor_scales_and_a_changed_quota_counts(world):
    async with world.producer(admission=2.0, tuning=Tuning(look_s=0.01)) as producer:
        await producer.put("slow", b"one")
        gate = producer._pipeline._rate._topics["slow"]
        assert 0.02 == gate._rate
        putting = [asyncio.create_task(producer.put("slow", b"%d" % n)) for n in range(3)]
        await until(lambda: len(gate._aside) == 3)
        world.topics.set("slow", '{"qps": 50000}')
        await asyncio.gather(*putting)
        assert 100_000 == gate._rate


async def test_messages_of_a_key_keep_their_order(world):
    """K4."""
    world.topics.set("slow", '{"qps": 300, "groups": 4}')
    async with world.producer(admission=1.0) as producer:
        many = producer.put_many(Put("slow", b"%d" % n, key="k") for n in range(40))
        await asyncio.gather(many, *(producer.put("slow", b"%d" % n, key="k") for n in range(40, 60)))
    numbers = [int(body) for body in of(world, "slow")]
    assert 60 == len(numbers)
    assert sorted(n for n in numbers if n < 40) == [n for n in numbers if n < 40]
    assert sorted(n for n in numbers if n >= 40) == [n for n in numbers if n >= 40]


async def test_cancelled_and_given_up_puts_are_not_sent_and_leave_nothing(world):
    async with world.producer(admission=1.0) as producer:
        await producer.put("slow", b"one")
        one = asyncio.create_task(producer.put("slow", b"two"))
        many = asyncio.create_task(producer.put_many([Put("slow", b"three")] * 3))
        gate = producer._pipeline._rate._topics["slow"]
        await until(lambda: len(gate._aside) >= 1)
        for each in (one, many):
            each.cancel()
        await asyncio.gather(one, many, return_exceptions=True)
        assert (0, True) == (len(gate._aside), producer._pipeline._sender.window.empty)
    assert [b"one"] == of(world, "slow")


async def test_closing_ends_what_waits_and_says_that_nothing_was_sent(world):
    async with world.producer(admission=1.0) as producer:
        await producer.put("slow", b"one")
        putting = asyncio.create_task(producer.put("slow", b"two"))
        many = asyncio.create_task(producer.put_many([Put("slow", b"three")] * 100))
        gate = producer._pipeline._rate._topics["slow"]
        await until(lambda: len(gate._aside) >= 1)
    with pytest.raises(NotAcknowledged, match="was not sent and is not stored: the producer was closed while it wait"):
        await putting
    assert 100 == len([each for each in await many if isinstance(each, Exception)])
    assert [b"one"] == of(world, "slow")


async def test_admission_waits_for_room_as_everything_does(world):
    world.server.delay_acks()
    async with world.producer(admission=1.0, window_messages=2) as producer:
        putting = asyncio.create_task(producer.put_many([Put("fast", b"x")] * 5))
        await until(lambda: len(of(world, "fast")) == 2)
        world.server.delay_acks(0)
        assert {Receipt: 5} == Counter(map(type, await putting))


async def test_a_cancelled_put_that_waits_for_room_gives_none_away(world):
    world.server.delay_acks()
    async with world.producer(admission=1.0, window_messages=1) as producer:
        first = asyncio.create_task(producer.put("fast", b"x"))
        await until(lambda: len(of(world, "fast")) == 1)
        second = asyncio.create_task(producer.put("fast", b"y"))
        await until(lambda: producer._pipeline._sender.window._waiting)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        world.server.delay_acks(0)
        await first
        await until(lambda: producer._pipeline._sender.window.empty)
        await producer.put("fast", b"z")
    assert [b"x", b"z"] == of(world, "fast")


async def test_gates_of_topics_that_are_idle_are_dropped(world):
    """M: a producer for tens of thousands of topics."""
    for number in range(100):
        world.topics.set(f"t{number}", '{"qps": 1000000}')
    async with world.producer(admission=1.0, tuning=Tuning(sweep_from=10)) as producer:
        for number in range(100):
            await producer.put(f"t{number}", b"x")
        assert len(producer._pipeline._rate._topics) < 100
