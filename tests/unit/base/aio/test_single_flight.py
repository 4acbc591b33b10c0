"""One reading for all callers that want it at the same time: from their calls on, or fresh enough."""

import asyncio

import pytest

from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.engine.errors import Unreachable


class Source:
    """Reads 1, 2, ... when the test lets it; raises what is in `fails` instead."""

    def __init__(self):
        self.now, self.count, self.fails = 10, 0, []
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self):
        self.count += 1
        number = self.count
        await asyncio.sleep(0)
        await self.may_end.wait()
        if self.fails:
            raise self.fails.pop()
        return number

    def fresh(self):
        return SingleFlight(self, fresh_ns=5, clock=lambda: self.now)


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


class TestWithoutFreshness:
    async def test_those_that_call_together_get_one_reading(self):
        source = Source()
        flight = SingleFlight(source)
        first, *others = await asyncio.gather(*(flight.read() for _ in range(10)))
        assert (1, {2}, 2) == (first, set(others), source.count)

    async def test_a_call_gets_nothing_that_was_being_read_already(self):
        source = Source()
        flight = SingleFlight(source)
        source.may_end.clear()
        early = asyncio.create_task(flight.read())
        await settle()
        late = [asyncio.create_task(flight.read()) for _ in range(3)]
        await settle()
        source.may_end.set()
        assert (1, [2, 2, 2]) == (await early, await asyncio.gather(*late))
        assert 3 == await flight.read()

    async def test_after_a_failure_the_next_one_reads(self):
        source = Source()
        source.fails = [OSError("gone")]
        flight = SingleFlight(source)
        outcomes = await asyncio.gather(*(flight.read() for _ in range(3)), return_exceptions=True)
        assert ["gone", "2", "2"] == [str(each) for each in outcomes]

    async def test_after_a_cancelled_call_the_next_one_reads(self):
        source = Source()
        source.may_end.clear()
        flight = SingleFlight(source)
        calls = [asyncio.create_task(flight.read()) for _ in range(2)]
        await settle()
        calls[0].cancel()
        source.may_end.set()
        assert 2 == await calls[1]


class TestWithFreshness:
    async def test_one_reading_is_for_all_until_it_is_old(self):
        source = Source()
        flight = source.fresh()
        assert [1] * 10 == await asyncio.gather(*(flight.read() for _ in range(10)))
        source.now = 14
        assert 1 == await flight.read()
        source.now = 15
        assert 2 == await flight.read()

    async def test_a_failure_is_for_all_and_is_forgotten(self):
        source = Source()
        source.fails = [Unreachable("etcd does not answer")]
        flight = source.fresh()
        outcomes = await asyncio.gather(*(flight.read() for _ in range(3)), return_exceptions=True)
        assert ["etcd does not answer"] * 3 == [str(each) for each in outcomes]
        source.now = 15
        assert 2 == await flight.read()

    async def test_a_defect_is_for_its_caller_alone(self):
        source = Source()
        source.fails = [ZeroDivisionError()]
        flight = source.fresh()
        with pytest.raises(ZeroDivisionError):
            await flight.read()
        assert 2 == await flight.read()
