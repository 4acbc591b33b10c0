"""Client-side rate limit: each topic's puts at its own rate, which delays no other topic (K6, X2)."""

import asyncio
from collections import Counter
from contextlib import asynccontextmanager

import pytest

from evenlane.engine.core.ports import Receipt
from evenlane.engine.errors import ConfigError, NotAcknowledged
from evenlane.engine.producer.put import Put
from evenlane.engine.producer.rate_limit import limiter_of
from evenlane.engine.producer.tuning import ProducerTuning
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time
from tests.unit.producer.conftest import opened_world


@pytest.fixture
def world(world):
    return with_topics(world)


def with_topics(world):
    world.topics.set("slow", '{"qps": 0.01}')
    world.topics.set("fast", '{"qps": 100000}')
    return world


@asynccontextmanager
async def virtual_world():
    """A world in virtual time, so that timeouts and rates don't depend on the machine."""
    async with opened_world() as made:
        yield with_topics(made)


def bodies(world, project):
    return [message.body for message in world.stored() if f".{project}." in message.subject]


class ClockLoop(asyncio.SelectorEventLoop):
    """An event loop whose time the test sets."""

    now = 0.0

    def time(self):
        return self.now


@pytest.mark.parametrize("rate", [0.01, 0.5, 1, 7, 10, 150, 1_000, 123_456.7])
def test_limiter_keeps_rate_from_first_second(rate):
    """Q: AsyncLimiter(0.5, 1) would never admit anything, AsyncLimiter(10, 1) 19 in its first second."""
    seconds, steps = max(1.0, 3 / rate), 20_000

    async def admit():
        loop, limiter, admitted = asyncio.get_running_loop(), limiter_of(rate), 0
        for step in range(steps + 1):
            loop.now = seconds * step / steps
            while limiter.has_capacity():
                await limiter.acquire()
                admitted += 1
        return admitted

    with asyncio.Runner(loop_factory=ClockLoop) as runner:
        admitted = runner.run(admit())
    burst = max(1, rate / 100)
    assert seconds * rate * 0.98 <= admitted <= seconds * rate + burst + 1


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), True, "1"])
def test_invalid_admission_is_refused(world, wrong):
    with pytest.raises(ConfigError, match=r"admission .* is not a number above 0: 1\.0 is the topic's own rate"):
        world.producer(admission=wrong)


@pytest.mark.parametrize("factor", [1, 2])
@in_virtual_time
async def test_slow_topic_puts_first_message_at_once_and_refuses_late_one(factor):
    """Rates far below 1/s work; the error of a put whose turn is too late says that it was not sent."""
    async with virtual_world() as world:
        async with world.producer(admission=factor, timeout=1) as producer:
            assert isinstance(await producer.put("slow", b"one"), Receipt)
            with pytest.raises(NotAcknowledged) as error:
                await producer.put("slow", b"two")
            assert (
                f"the message for slow was not sent and is not stored: admission limits its topic to 0.0{factor}/s,"
                " and its turn did not come in 1 s"
            ) == str(error.value)
        assert [b"one"] == bodies(world, "slow")


@in_virtual_time
async def test_slow_topic_does_not_delay_others_of_batch():
    """X2: the slow topic's puts come first and wait; all of the fast topic's are stored meanwhile."""
    async with virtual_world() as world:
        world.topics.set("slow", '{"qps": 1}')
        puts = [Put("slow", b"%d" % n) for n in range(6)] + [Put("fast", b"%d" % n) for n in range(2_000)]
        async with world.producer(admission=1.0, timeout=60, tuning=ProducerTuning(look_s=0.01)) as producer:
            landed = []
            putting = asyncio.create_task(producer.put_each(puts, lambda number, _: landed.append(number)))
            await until(lambda: len(bodies(world, "fast")) == 2_000)
            assert len(bodies(world, "slow")) < 6
            world.topics.set("slow", '{"qps": 50000}')
            await putting
        assert 2_006 == len(set(landed))
        assert [b"%d" % n for n in range(6)] == bodies(world, "slow")


@in_virtual_time
async def test_waiting_puts_are_bounded_and_source_waits():
    """M: no put of a long source misses its deadline because it was taken early."""
    async with virtual_world() as world:
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


@in_virtual_time
async def test_changed_quota_applies_to_waiting_puts():
    """At the old rate, each would take 100 s."""
    tuning = ProducerTuning(look_s=0.01)
    async with virtual_world() as world, world.producer(admission=1.0, tuning=tuning) as producer:
        await producer.put("slow", b"one")
        putting = [asyncio.create_task(producer.put("slow", b"%d" % n)) for n in range(3)]
        await asyncio.sleep(0)
        world.topics.set("slow", '{"qps": 50000}')
        assert [Receipt] * 3 == [type(each) for each in await asyncio.gather(*putting)]


@in_virtual_time
async def test_messages_of_key_keep_their_order():
    """K4."""
    async with virtual_world() as world:
        world.topics.set("slow", '{"qps": 300, "groups": 4}')
        async with world.producer(admission=1.0) as producer:
            many = producer.put_many(Put("slow", b"%d" % n, key="k") for n in range(40))
            await asyncio.gather(many, *(producer.put("slow", b"%d" % n, key="k") for n in range(40, 60)))
        numbers = [int(body) for body in bodies(world, "slow")]
        assert 60 == len(numbers)
        assert sorted(n for n in numbers if n < 40) == [n for n in numbers if n < 40]
        assert sorted(n for n in numbers if n >= 40) == [n for n in numbers if n >= 40]


@in_virtual_time
async def test_cancelled_puts_are_not_sent_and_release_their_room():
    async with virtual_world() as world:
        async with world.producer(admission=1.0, window_messages=1, tuning=ProducerTuning(look_s=0.01)) as producer:
            await producer.put("slow", b"one")
            one = asyncio.create_task(producer.put("slow", b"two"))
            many = asyncio.create_task(producer.put_many([Put("slow", b"three")] * 3))
            await asyncio.sleep(0)
            for each in (one, many):
                each.cancel()
            await asyncio.gather(one, many, return_exceptions=True)
            world.topics.set("slow", '{"qps": 50000}')
            await producer.put("slow", b"last")
        assert [b"one", b"last"] == bodies(world, "slow")


async def test_closing_fails_waiting_puts_as_not_sent(world):
    async with world.producer(admission=1.0) as producer:
        await producer.put("slow", b"one")
        putting = asyncio.create_task(producer.put("slow", b"two"))
        many = asyncio.create_task(producer.put_many([Put("slow", b"three")] * 100))
        await asyncio.sleep(0)
    with pytest.raises(NotAcknowledged, match="was not sent and is not stored: the producer was closed while it wait"):
        await putting
    assert 100 == len([each for each in await many if isinstance(each, Exception)])
    assert [b"one"] == bodies(world, "slow")


async def test_admitted_puts_wait_for_window(world):
    world.server.delay_acks()
    async with world.producer(admission=1.0, window_messages=2) as producer:
        putting = asyncio.create_task(producer.put_many([Put("fast", b"x")] * 5))
        await until(lambda: len(bodies(world, "fast")) == 2)
        world.server.delay_acks(0)
        assert {Receipt: 5} == Counter(map(type, await putting))


@pytest.mark.parametrize("steps", range(5))
async def test_put_cancelled_on_its_way_to_window_takes_no_room(world, steps):
    """Steps of the event loop until it is cancelled: it is set aside, then waits for the window."""
    world.server.delay_acks()
    async with world.producer(admission=1.0, window_messages=1) as producer:
        first = asyncio.create_task(producer.put("fast", b"x"))
        await until(lambda: len(bodies(world, "fast")) == 1)
        second = asyncio.create_task(producer.put("fast", b"y"))
        for _ in range(steps):
            await asyncio.sleep(0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        world.server.delay_acks(0)
        await first
        await producer.put("fast", b"z")
    assert [b"x", b"z"] == bodies(world, "fast")


async def test_limiters_of_idle_topics_are_dropped(world):
    """M: a producer for tens of thousands of topics."""
    for number in range(100):
        world.topics.set(f"t{number}", '{"qps": 1000000}')
    async with world.producer(admission=1.0, tuning=ProducerTuning(sweep_from=10)) as producer:
        for number in range(100):
            await producer.put(f"t{number}", b"x")
        assert len(producer._pipeline._rate._topics) < 100
