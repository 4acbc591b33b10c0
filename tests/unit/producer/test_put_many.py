"""Batches: each put has its outcome, in order, and the window bounds the puts in flight (K6, P8)."""

import asyncio

import pytest

from evenlane.engine.core.ports import Receipt
from evenlane.engine.errors import ConfigError, UnknownProject
from evenlane.engine.producer.put import Put
from tests.support.until import until


async def test_batch_returns_outcomes_in_order_despite_errors(world):
    """K6: batches."""
    many = [Put("acme" if number % 3 else "nobody", str(number).encode()) for number in range(3_000)]
    async with world.producer() as producer:
        outcomes = await producer.put_many(many)
    kinds = [type(outcome) for outcome in outcomes]
    assert [Receipt if number % 3 else UnknownProject for number in range(3_000)] == kinds
    assert {str(number).encode() for number in range(3_000) if number % 3} == {m.body for m in world.stored()}


async def test_batch_may_be_async_iterator_or_empty(world):
    async def some():
        for number in range(10):
            await asyncio.sleep(0)
            yield Put("acme", b"%d" % number)

    async with world.producer() as producer:
        assert 10 == len(await producer.put_many(some()))
        assert [] == await producer.put_many([])


async def test_window_bounds_unacknowledged_puts_and_source(world):
    """K6: a batch of any length needs bounded memory."""
    world.server.delay_acks()
    taken = []

    def source():
        for number in range(1_000):
            taken.append(number)
            yield Put("acme", b"x" * 100)

    async with world.producer(window_messages=50) as producer:
        putting = asyncio.create_task(producer.put_many(source()))
        await until(lambda: len(world.stored()) == 50)
        await asyncio.sleep(0)
        assert (51, 50) == (len(taken), len(world.stored()))
        world.server.delay_acks(0)
        assert 1_000 == len(await putting)


@pytest.mark.parametrize("name", ["timeout", "window_messages", "window_bytes"])
@pytest.mark.parametrize("wrong", [0, -1, True, "9", float("nan"), float("inf")])
def test_invalid_bound_is_refused(world, name, wrong):
    """K6: in one sentence, before anything is put."""
    with pytest.raises(ConfigError, match=rf"^{name} .* is not a number (from 1|above 0)$"):
        world.producer(**{name: wrong})


async def test_whole_number_may_be_given_as_float(world):
    async with world.producer(window_messages=1e4, timeout=5) as producer:
        assert 1 == (await producer.put("acme", b"x")).sequence


async def test_window_counts_bytes_and_larger_message_passes_alone(world):
    world.server.delay_acks()
    async with world.producer(window_bytes=3_000) as producer:
        putting = asyncio.create_task(producer.put_many([Put("acme", b"x" * 1_000)] * 10))
        await until(lambda: len(world.stored()) == 2)
        world.server.delay_acks(0)
        await putting
        await producer.put("acme", b"x" * 10_000)
    assert 11 == len(world.stored())


async def test_cancelled_puts_release_their_room(world):
    world.server.delay_acks()
    async with world.producer(window_messages=3) as producer:
        putting = [asyncio.create_task(producer.put("acme", b"x")) for _ in range(6)]
        await until(lambda: len(world.stored()) == 3)
        for each in putting:
            each.cancel()
        assert 6 == len(await asyncio.gather(*putting, return_exceptions=True))
        many = asyncio.create_task(producer.put_many([Put("acme", b"y")] * 9))
        await until(lambda: len(world.stored()) == 6)
        many.cancel()
        await asyncio.gather(many, return_exceptions=True)
        last = asyncio.create_task(producer.put_many([Put("acme", b"z")] * 3))
        await until(lambda: len(world.stored()) == 9)
        world.server.delay_acks(0)
        assert {Receipt} == {type(outcome) for outcome in await last}


@pytest.mark.parametrize("project", ["acme", "nobody"])
@pytest.mark.parametrize("count", [1, 5_000])
async def test_error_of_done_ends_put_each(world, project, count, caplog):
    """Once, and without a word in the log."""
    calls = []

    def fail(number, _outcome):
        calls.append(number)
        raise LookupError("row is gone")

    async with world.producer() as producer:
        with pytest.raises(LookupError, match="row is gone"):
            await producer.put_each((Put(project, b"x") for _ in range(count)), fail)
        assert isinstance(await producer.put("acme", b"still works"), Receipt)
    assert (len(calls), caplog.records) == (1, [])


@pytest.mark.parametrize(
    ("puts", "why"),
    [
        (None, "such as a list of Put, and this is of type NoneType"),
        (Put("acme", b""), "this is one Put: give a list of puts, or use `put`"),
    ],
)
async def test_many_puts_are_needed(world, puts, why):
    async with world.producer() as producer:
        with pytest.raises(TypeError, match=why):
            await producer.put_many(puts)
