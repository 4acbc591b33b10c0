"""`--fallback`: a second handler of the user, for messages that would otherwise be dead-lettered (E13)."""

import asyncio
import threading

import pytest

from evenlane.engine.core.message.handler_exceptions import Reject, Retry
from evenlane.engine.core.message.message import batch
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.fallback import Fallback
from evenlane.engine.node.handlers.handler import Handler
from tests.support.node.fallback import FallbackWorld, raising
from tests.support.node.keyed import Held, failing, ordered
from tests.support.node.world import turns
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time


@pytest.fixture
async def world():
    async with FallbackWorld() as made:
        yield made


ENDS = {
    "failed": (ValueError("no good"), 2, "failed 2 times", "ValueError: no good"),
    "retried": (Retry(reason="later"), 2, "failed 2 times", "Retry: later"),
    "rejected": (Reject("not wanted"), 1, "rejected", "not wanted"),
    "hung": (None, 2, "failed 2 times", "HandlerTimedOut: no sign of life for longer than ack_wait"),
}


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("end", ENDS)
async def test_fallback_replaces_the_dead_letter(world, end, kind):
    """K4: it gets reason, error and attempt. When it returns, the message is settled, and counted."""
    error, attempt, reason, text = ENDS[end]
    threads = []

    async def act(message):
        if error is None:
            await asyncio.Event().wait()
        raise error

    def plain(message):
        threads.append(threading.current_thread() is not threading.main_thread())
        world.taken.append((message.id, message.attempt, message.reason, message.error))

    world.act = act
    (message_id,) = await world.put_keys([None])
    node = await world.node_with_fallback(fallback=plain if kind == "plain" else None)
    await world.all_gone()
    assert [(message_id, attempt, reason, text)] == world.taken
    assert (1, 0, 0) == (node.counters.fallen_back, node.counters.dead, len(world.dead()))
    assert [True] * (kind == "plain") == threads


async def test_fallback_gets_messages_of_a_batch_one_by_one(world):
    """K4."""

    @batch(max=5)
    async def handle(messages):
        raise Reject("not wanted")

    put = await world.put_keys([None] * 5)
    await world.node_with_fallback(handle)
    await world.all_gone()
    assert {(message_id, 1, "rejected", "not wanted") for message_id in put} == set(world.taken)


def test_fallback_that_takes_batches_is_rejected():
    with pytest.raises(ConfigError, match="takes batches: it must take one message"):
        Fallback(Handler.of(batch(max=3)(lambda messages: None)), None)


ERRORS = [
    (OSError("disk full"), "OSError: disk full"),
    (Reject("nor here"), "Reject: nor here"),
    (asyncio.CancelledError(), "cancelled"),
]


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_failed_fallback_dead_letters_the_message_with_both_errors(world, kind, error, text):
    """K4, L: and the node goes on. test_raised.py has other exceptions."""

    def plain(message):
        raise error

    world.fallback_act = raising(error)
    await world.put_keys([None])
    node = await world.node_with_fallback(fallback=plain if kind == "plain" else None)
    await world.all_gone()
    ((reason, errors),) = world.dead_letters()
    assert "failed 2 times" == reason
    assert errors.startswith("ValueError: no good; its fallback failed, too: ")
    assert text.lower() in errors.lower()
    assert (0, 1) == (node.counters.fallen_back, node.counters.dead)
    world.act = world.nothing
    await world.put_keys([None])
    await world.all_gone()
    assert 1 == len(world.ids)


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_fallback_times_out_after_ack_wait(world, kind):
    """P11: its message is dead-lettered."""
    release = threading.Event()
    world.fallback_act = lambda message: asyncio.Event().wait()
    await world.put_keys([None])
    await world.node_with_fallback(fallback=(lambda message: release.wait(60)) if kind == "plain" else None)
    await world.all_gone()
    release.set()
    ((_, errors),) = world.dead_letters()
    timed_out = "HandlerTimedOut: no sign of life for longer than ack_wait"
    assert f"ValueError: no good; its fallback failed, too: {timed_out}" == errors


@in_virtual_time
async def test_sign_of_life_extends_the_time_of_a_fallback():
    """P11."""

    async def fallback_act(message):
        loop = asyncio.get_running_loop()
        end = loop.time() + 0.6  # twice its ack_wait
        while loop.time() < end:
            message.in_progress()
            await asyncio.sleep(0.02)

    async with FallbackWorld() as world:
        world.fallback_act = fallback_act
        await world.put_keys([None])
        node = await world.node_with_fallback()
        await world.all_gone()
        assert 1 == node.counters.fallen_back
        assert [] == world.dead()


async def test_key_waits_for_the_fallback():
    """K6: the message hasn't ended before. Other keys run meanwhile."""
    async with FallbackWorld(acme=ordered(max_attempts=1)) as world:
        first, second = await world.put_keys(["k"] * 2)
        other = await world.put_key("other")
        world.act, world.fallback_act = failing(first), Held(first)
        node = await world.node_with_fallback()
        await until(lambda: other in world.ids and world.taken)
        assert [first] == world.ids_of("k")
        assert [1] == [queue.order.waiting for queue in node.queues.all()]
        world.fallback_act.go()
        await world.all_gone()
        assert [other, second] == world.ids


async def test_at_most_four_fallbacks_of_a_project_run_at_once(world):
    """M, X9: further ones wait for their turn."""
    running, most = 0, 0

    async def fallback_act(message):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await turns()
        running -= 1

    world.fallback_act = fallback_act
    await world.put_keys([None] * 60)
    node = await world.node_with_fallback(concurrency=64)
    await world.all_gone()
    assert 4 == most
    assert 60 == node.counters.fallen_back


async def test_fallbacks_occupy_no_slots(world):
    """E13: no message waits behind a failing one."""
    put = await world.put_keys([None] * 8)
    world.act, world.fallback_act = failing(*put), Held(*put)
    await world.node_with_fallback(concurrency=2)
    others = await world.put_keys([None] * 20)
    await until(lambda: len(world.taken) == 8 and set(others) == set(world.ids))
    world.fallback_act.go()
    await world.all_gone()
