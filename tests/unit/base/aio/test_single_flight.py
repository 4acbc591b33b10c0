"""One reading for all simultaneous callers, begun after their calls, or fresh enough."""

import asyncio

import pytest

from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.engine.errors import Unreachable


class Source:
    """Reads 1, 2, ... once `may_end` is set; raises the errors in `fails` first."""

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
    async def test_simultaneous_callers_share_a_reading(self):
        source = Source()
        flight = SingleFlight(source)
        first, *others = await asyncio.gather(*(flight.read() for _ in range(10)))
        assert (1, {2}, 2) == (first, set(others), source.count)

    async def test_caller_gets_no_reading_begun_before_its_call(self):
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

    async def test_next_caller_reads_after_a_failure(self):
        source = Source()
        source.fails = [OSError("gone")]
        flight = SingleFlight(source)
        outcomes = await asyncio.gather(*(flight.read() for _ in range(3)), return_exceptions=True)
        assert ["gone", "2", "2"] == [str(each) for each in outcomes]

    async def test_next_caller_reads_after_a_cancelled_one(self):
        source = Source()
        source.may_end.clear()
        flight = SingleFlight(source)
        calls = [asyncio.create_task(flight.read()) for _ in range(2)]
        await settle()
        calls[0].cancel()
        source.may_end.set()
        assert 2 == await calls[1]


class TestWithFreshness:
    async def test_reading_is_shared_while_fresh(self):
        source = Source()
        flight = source.fresh()
        assert [1] * 10 == await asyncio.gather(*(flight.read() for _ in range(10)))
        source.now = 14
        assert 1 == await flight.read()
        source.now = 15
        assert 2 == await flight.read()

    async def test_failure_is_shared_while_fresh(self):
        source = Source()
        source.fails = [Unreachable("etcd does not answer")]
        flight = source.fresh()
        outcomes = await asyncio.gather(*(flight.read() for _ in range(3)), return_exceptions=True)
        assert ["etcd does not answer"] * 3 == [str(each) for each in outcomes]
        source.now = 15
        assert 2 == await flight.read()

    async def test_unexpected_error_is_raised_to_its_caller_only(self):
        source = Source()
        source.fails = [ZeroDivisionError()]
        flight = source.fresh()
        with pytest.raises(ZeroDivisionError):
            await flight.read()
        assert 2 == await flight.read()
