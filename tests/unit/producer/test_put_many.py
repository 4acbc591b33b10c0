"""Many puts at once: each has its outcome, in order, and no more are on their way than the window holds (K6, P8)."""

import asyncio

from evenlane.engine.core.ports import Receipt
from evenlane.engine.errors import UnknownProject
from evenlane.engine.producer.put import Put
from tests.support.until import until


async def test_many_have_their_results_in_order_and_a_wrong_one_stops_nothing(world):
    """K6: batches."""
    many = [Put("acme" if number % 3 else "nobody", str(number).encode()) for number in range(3_000)]
    async with world.producer() as producer:
        outcomes = await producer.put_many(many)
    kinds = [type(outcome) for outcome in outcomes]
    assert [Receipt if number % 3 else UnknownProject for number in range(3_000)] == kinds
    assert {str(number).encode() for number in range(3_000) if number % 3} == {m.body for m in world.stored()}


async def test_many_may_come_from_an_async_iterator(world):
    async def some():
        for number in range(10):
            await asyncio.sleep(0)
            yield Put("acme", b"%d" % number)

    async with world.producer() as producer:
        assert 10 == len(await producer.put_many(some()))
        assert [] == await producer.put_many([])


async def test_no_more_wait_for_their_acknowledgement_than_the_window_holds(world):
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


async def test_the_window_counts_bytes_and_a_larger_message_passes_alone(world):
    world.server.delay_acks()
    async with world.producer(window_bytes=3_000) as producer:
        putting = asyncio.create_task(producer.put_many([Put("acme", b"x" * 1_000)] * 10))
        await until(lambda: len(world.stored()) == 2)
        world.server.delay_acks(0)
        await putting
        await producer.put("acme", b"x" * 10_000)
    assert 11 == len(world.stored())


async def test_a_cancelled_put_leaves_room_and_nothing_behind(world):
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
        sender = producer._pipeline._sender
        assert ({}, True) == (sender._in_flight, sender.window.empty)
        world.server.delay_acks(0)
        await producer.put("acme", b"z")
