"""Exceptions of all kinds from handlers of all kinds: the message has failed, and the node goes on."""

import asyncio
import contextlib

import pytest

from evenlane.engine.core.message.handler_exceptions import Pause, Reject, Retry
from evenlane.engine.core.message.message import batch
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.handler import Handler
from tests.support.node.keyed import QUICK
from tests.support.node.world import World, topic
from tests.support.until import until


class Mute(Exception):
    def __str__(self):
        raise SystemExit("not even its text")


class Bare(Retry):
    def __init__(self):
        """Skips `Retry.__init__`."""


class BarePause(Pause):
    def __init__(self):
        """Skips `Pause.__init__`."""


class BareReject(Reject):
    def __init__(self):
        """Skips `Reject.__init__`."""


def changed(error, **values):
    for name, value in values.items():
        setattr(error, name, value)
    return error


RAISED = {
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(0),
    "StopAsyncIteration": StopAsyncIteration,
    "StopIteration": StopIteration,
    "CancelledError": asyncio.CancelledError,
    "BaseException": BaseException,
    "group": lambda: BaseExceptionGroup("all", [BaseExceptionGroup("of", [GeneratorExit(), KeyboardInterrupt()])]),
    "mute": Mute,
    "bare retry": Bare,
    "bare pause": BarePause,
    "bare reject": BareReject,
    "late retry": lambda: changed(Retry(1), after="soon"),
    "endless retry": lambda: changed(Retry(1), after=float("nan")),
}


def fail(message):
    """Raise the error that the body names, or recurse to the limit."""
    what = message.body.decode()
    if what == "recursion":
        fail(message)
    elif what != "good":
        raised = RAISED[what]
        raise raised()


def of_each_kind(world):
    """The same handler in each kind of call."""

    async def each(message):
        fail(message)
        world.handled.append(message)

    def in_thread(message):
        fail(message)
        world.handled.append(message)

    @batch(max=1)
    async def batched(messages):
        await each(*messages)

    @batch(max=1)
    def batched_in_thread(messages):
        in_thread(*messages)

    return {"async": each, "def": in_thread, "batch": batched, "def batch": batched_in_thread}


@pytest.mark.parametrize("kind", ["async", "def", "batch", "def batch"])
async def test_any_exception_is_a_failed_attempt(kind):
    """F7, E13: each message is tried `max_attempts` times and dead-lettered, and those in between are handled."""
    ends = []
    async with World(acme=topic(max_attempts=2, backoff=QUICK)) as world:
        for what in [*RAISED, "recursion"]:
            await world.put(what.encode(), id=what.replace(" ", "-"))
            await world.put(b"good")
        node = await world.node(of_each_kind(world)[kind], on_stop=ends.append, concurrency=2)
        await until(lambda: len(RAISED) + 1 == len(world.dead()) and len(world.handled) > len(RAISED))
        assert ([], 0) == (ends, node.counters.void)
        assert [1] * (len(RAISED) + 1) == [message.attempt for message in world.handled]
        assert {"failed 2 times"} == {h.value(each.headers, h.REASON) for each in world.dead()}


async def test_reject_may_have_a_reason_of_any_type():
    """K4: anyone can overwrite it."""
    ends = []

    async def handle(_message):
        raise changed(Reject("x"), reason=42)

    async with World(acme=topic()) as world:
        await world.put()
        await world.node(handle, on_stop=ends.append)
        await until(world.dead)
        (dead,) = world.dead()
        assert ([], "rejected", "42") == (ends, h.value(dead.headers, h.REASON), h.value(dead.headers, h.ERROR))


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_any_exception_of_a_fallback_dead_letters_its_message(kind):
    """K4: with both errors. The node goes on."""
    ends = []
    async with World(acme=topic(max_attempts=1, backoff=QUICK)) as world:
        for what in [*RAISED, "recursion"]:
            await world.put(what.encode(), id=what.replace(" ", "-"))
        fallback = Handler.of(of_each_kind(world)[kind])
        await world.node(of_each_kind(world)["async"], fallback=fallback, on_stop=ends.append)
        await until(lambda: len(RAISED) + 1 == len(world.dead()))
        assert [] == ends
        assert all("its fallback failed, too" in h.decode(each.headers)[h.ERROR] for each in world.dead())


@pytest.mark.parametrize("then", ["return", "wait", "swallow"])
async def test_handler_that_cancels_its_task_costs_no_worker(then):
    """X9: whether the cancellation is raised in the handler or after it, the next message isn't affected."""
    ends = []

    async def handle(message):
        if message.body == b"cancel":
            asyncio.current_task().cancel()
            if then == "wait":
                await asyncio.sleep(0)
            elif then == "swallow":
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
        else:
            await asyncio.sleep(0)
            world.handled.append(message)

    async with World(acme=topic(max_attempts=1)) as world:
        for _ in range(20):
            await world.put(b"cancel")
            await world.put(b"good")
        await world.node(handle, concurrency=4, on_stop=ends.append)
        dead = 20 if then == "wait" else 0
        await until(lambda: 20 == len(world.handled) and dead == len(world.dead()))
        await world.put(b"good")
        await until(lambda: 21 == len(world.handled))
        assert {1} == {message.attempt for message in world.handled}
        assert [] == ends


async def test_handler_that_cancels_all_tasks_ends_the_node():
    """X11: with an error, so that the next owner doesn't assume a clean end."""
    ends = []

    async def handle(message):
        for task in asyncio.all_tasks() - {own}:
            task.cancel()

    own = asyncio.current_task()
    async with World() as world:
        await world.put()
        await world.node(handle, on_stop=ends.append)
        await until(lambda: ends)
        assert "CancelledError" in ends[0]


async def test_handler_cannot_change_the_body_of_the_copy():
    """K2: the next attempt has the body that was put."""
    bodies = []

    async def handle(message):
        bodies.append(message.body)
        message.body = message.body.decode()
        raise ValueError("after it was decoded")

    async with World(acme=topic(max_attempts=2, backoff=QUICK)) as world:
        await world.put("Käse".encode())
        await world.node(handle)
        await until(world.dead)
        assert ["Käse".encode()] * 2 == bodies
        assert "Käse".encode() == world.dead()[0].body
