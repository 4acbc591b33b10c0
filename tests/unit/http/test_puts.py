"""The producer for puts by HTTP: opened once, by the first request, and again after a failure."""

import asyncio

import pytest

from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.http.puts import PutService


class Producer:
    """A producer that counts its opens; each one waits for `may_open`, and raises `fails` if it is set."""

    def __init__(self):
        self.opened = self.closed = 0
        self.fails = None
        self.may_open = asyncio.Event()
        self.may_open.set()

    async def open(self):
        self.opened += 1
        await self.may_open.wait()
        if self.fails is not None:
            raise self.fails

    async def close(self):
        self.closed += 1


@pytest.fixture
def made():
    return Producer()


@pytest.fixture
def service(made):
    return PutService(lambda: made, "n", at_once=2, held_bytes=100)


async def test_no_request_opens_no_producer(service, made):
    await service.close()
    assert (0, 0) == (made.opened, made.closed)


async def test_concurrent_first_requests_open_one_producer(service, made):
    assert [made] * 5 == await asyncio.gather(*(service.producer() for _ in range(5)))
    assert made is await service.producer()
    assert 1 == made.opened
    await service.close()
    assert 1 == made.closed


async def test_failed_open_fails_all_that_wait_and_the_next_request_tries_again(service, made):
    made.fails = Unreachable("NATS at x does not answer")
    outcomes = await asyncio.gather(*(service.producer() for _ in range(3)), return_exceptions=True)
    assert ([made.fails] * 3, 1) == (outcomes, made.opened)
    made.fails = None
    assert made is await service.producer()
    assert 2 == made.opened


async def test_request_that_is_cancelled_does_not_cancel_the_open(service, made):
    made.may_open.clear()
    asking = [asyncio.create_task(service.producer()) for _ in range(2)]
    await asyncio.sleep(0)
    asking[0].cancel()
    made.may_open.set()
    assert made is await asking[1]
    assert 1 == made.opened


async def test_close_does_not_wait_for_an_open_that_hangs(service, made):
    made.may_open.clear()
    asking = asyncio.create_task(service.producer())
    while not made.opened:
        await asyncio.sleep(0)
    await asyncio.wait_for(service.close(), 10)
    with pytest.raises(EvenlaneError, match="node n is shutting down and takes no more messages"):
        await asking
    assert 0 == made.closed


def test_places_and_bytes_are_bounded_and_given_back(service):
    with service.admit(), service.admit():
        with pytest.raises(EvenlaneError, match="2 requests are already putting messages"), service.admit():
            pass
        alone = service.hold(1_000)  # it may be larger than the bound
        with alone, pytest.raises(EvenlaneError, match="there is no room for 1 more"), service.hold(1):
            pass
        with service.hold(60), service.hold(40):
            pass
    with service.admit():
        pass
