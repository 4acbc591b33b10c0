"""Whatever a handler raises, however it is called: its message has failed, and the node goes on."""

import asyncio
import contextlib

import pytest

from evenlane.engine.core.message.message import Pause, Reject, Retry, batch
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
        """Without a word to Retry."""


class BarePause(Pause):
    def __init__(self):
        """Without a word to Pause."""


class BareReject(Reject):
    def __init__(self):
        """Without a word to Reject."""


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
    """As its body says: raise, or recurse to the limit."""
    what = message.body.decode()
    if what == "recursion":
        fail(message)
    elif what != "good":
        raised = RAISED[what]
        raise raised()


def of_each_kind(world):
    """Handlers that fail in every way there is of being called."""

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
async def test_whatever_is_raised_is_a_failed_attempt(kind):
    """F7, E13: each is tried as often as its topic says and is a dead letter then; what comes between is handled."""
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


@pytest.mark.parametrize("kind", ["async", "def"])
async def test_whatever_a_fallback_raises_its_message_is_a_dead_letter(kind):
    """K4: with both errors, and the node goes on."""
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
async def test_one_that_cancels_its_own_task_costs_the_node_no_worker(then):
    """X9: whether the cancellation comes out of the handler or only after it, the next message doesn't hear of it."""
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


async def test_one_that_cancels_the_loops_tasks_ends_the_node():
    """X11: not in order: nobody is to believe that nothing was in flight."""
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


async def test_what_a_handler_makes_of_its_message_is_not_what_its_copies_hold():
    """K2: the body of the next attempt is the one that was put."""
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
