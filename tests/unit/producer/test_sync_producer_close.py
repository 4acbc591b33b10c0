"""Closing a producer for programs without an event loop, at the worst moments (P8)."""

import asyncio
import gc
import os
import signal
import threading
from concurrent.futures import CancelledError

import pytest

from evenlane import ConfigError, NotAcknowledged, Put, Receipt
from evenlane.engine.base.aio.caller_loop import CallerLoop
from evenlane.engine.errors import ProducerClosed
from tests.unit.producer.test_sync_producer import make, world

__all__ = ["world"]  # a fixture
pytestmark = pytest.mark.timeout(20)  # a put that nobody completes would wait for ever


class Program(threading.Thread):
    """A thread of a program; `outcome` is what its call returned or raised."""

    def __init__(self, call):
        super().__init__(daemon=True)
        self.outcome = None
        self._call = call
        self.start()

    def run(self):
        try:
            self.outcome = self._call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.outcome = error


def test_close_waits_for_puts_of_other_threads(world):
    producer = make(world)
    producer.put("acme", b"0")
    world.server.delay_acks(0.3)
    began = threading.Event()

    def puts():
        yield Put("acme", b"1")
        began.set()

    program = Program(lambda: producer.put_many(puts()))
    began.wait()
    producer.close()
    program.join()
    assert [Receipt] == [type(each) for each in program.outcome]


def test_puts_that_outlast_the_timeout_of_close_fail(world):
    producer, began, closed = make(world), threading.Event(), threading.Event()

    def puts():
        for number in range(10):
            yield Put("acme", b"%d" % number)
            began.set()
            closed.wait()

    program = Program(lambda: producer.put_many(puts()))
    began.wait()
    producer.close(0.01)
    closed.set()
    program.join()
    assert isinstance(program.outcome, ProducerClosed)


def test_done_may_close(world):
    producer = make(world)
    with pytest.raises(ProducerClosed, match="this producer is closed"):
        producer.put_each([Put("acme", b"1"), Put("acme", b"2")], lambda _number, _outcome: producer.close())


def test_handler_of_a_signal_may_close_while_its_thread_puts(world):
    producer = make(world, timeout=60)
    producer.put("acme", b"0")
    world.server.disconnect()
    before = signal.signal(signal.SIGUSR1, lambda *_: producer.close())
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    try:
        with pytest.raises(NotAcknowledged, match="the producer was closed"):
            producer.put("acme", b"1")
    finally:
        timer.join()
        signal.signal(signal.SIGUSR1, before)


def test_close_of_a_producer_that_still_connects_ends_in_time(world):
    connecting, go_on = threading.Event(), threading.Event()

    class SlowStore:
        def __getattr__(self, name):
            return getattr(world.store, name)

        async def prepare(self, *given):
            connecting.set()
            await asyncio.to_thread(go_on.wait)
            await world.store.prepare(*given)

    producer = make(world, store=SlowStore())
    program = Program(lambda: producer.put("acme", b"1"))
    connecting.wait()
    producer.close(0.01)
    go_on.set()
    program.join()
    assert isinstance(program.outcome, ProducerClosed)
    assert world.stored() == []


def test_put_in_the_producers_own_thread_is_refused(world):
    class Topics:
        """Topics whose look-up puts, as a log handler may."""

        def get(self, _project):
            return producer.put("acme", b"of its own")

    producer = make(world, topics=Topics())
    with pytest.raises(ConfigError, match="the producer's own thread can't put, as it would wait for itself"):
        producer.put("acme", b"1")
    producer.close()


def test_many_puts_must_not_be_asynchronous(world):
    async def puts():
        yield Put("acme", b"1")

    with pytest.raises(TypeError, match="many puts are needed without `async`"):
        make(world).put_many(puts())


def test_producer_that_nobody_has_any_more_ends_its_thread(world):
    before = set(threading.enumerate())
    for _ in range(3):
        make(world).put("acme", b"1")
    gc.collect()
    left = [each for each in threading.enumerate() if each not in before]
    for each in left:
        each.join(10)
    assert [] == [each.name for each in threading.enumerate() if each not in before]


def test_outcomes_need_a_function(world):
    with pytest.raises(TypeError, match=r"done must be a function .*, and it is of type NoneType"):
        make(world).put_each([], None)


async def answer():
    return "answer"


def test_stopped_loop_begins_no_work():
    """A call that comes too late is told so; nobody would complete it."""
    loop = CallerLoop("test")
    assert loop.run(answer()) == "answer"
    loop.stop()
    loop.stop()
    with pytest.raises(CancelledError):
        loop.run(answer())
