"""`--fallback`: a handler of the user's own for what would become a dead letter (issue 5, item 2)."""

import asyncio
import threading

import pytest

from evenlane.engine.core.message.message import Reject, Retry, batch
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.handler import Handler
from tests.support.node.fallback import Falling, raising
from tests.support.node.keyed import Held, failing, ordered
from tests.support.until import until


@pytest.fixture
async def world():
    async with Falling() as made:
        yield made


ENDS = {
    "failed": (ValueError("no good"), 2, "failed 2 times", "ValueError: no good"),
    "retried": (Retry(reason="later"), 2, "failed 2 times", "Retry: later"),
    "rejected": (Reject("not wanted"), 1, "rejected", "not wanted"),
    "hung": (None, 2, "failed 2 times", "HandlerTimedOut: no sign of life for longer than ack_wait"),
}


@pytest.mark.parametrize("kind", ["async", "plain"])
@pytest.mark.parametrize("end", ENDS)
async def test_it_takes_what_would_be_dead(world, end, kind):
    """K4: with reason, error and attempt; settled when it returns, counted, and no dead letter."""
    error, attempt, reason, text = ENDS[end]
    threads = []

    async def act(message):
        if error is None:
            await asyncio.sleep(60)
        raise error

    def plain(message):
        threads.append(threading.current_thread() is not threading.main_thread())
        world.taken.append((message.id, message.attempt, message.reason, message.error))

    world.act = act
    (own,) = await world.put_keys([None])
    node = await world.falling(fallback=plain if kind == "plain" else None)
    await world.all_over()
    assert [(own, attempt, reason, text)] == world.taken
    assert (1, 0, 0) == (node.counters.fallen_back, node.counters.dead, len(world.dead()))
    assert [True] * (kind == "plain") == threads


async def test_a_batch_falls_one_by_one(world):
    """K4: it takes one message, whatever the handler takes."""

    @batch(max=5)
    async def handle(messages):
        raise Reject("not wanted")

    put = await world.put_keys([None] * 5)
    await world.falling(handle)
    await world.all_over()
    assert {(own, 1, "rejected", "not wanted") for own in put} == set(world.taken)


def test_one_of_batches_is_refused():
    """Bad input: one clear sentence."""
    from evenlane.engine.node.handlers.fallback import Fallback

    with pytest.raises(ConfigError, match="takes batches: it must take one message"):
        Fallback(Handler.of(batch(max=3)(lambda messages: None)), None)


ERRORS = [
    (OSError("disk full"), "OSError: disk full"),
    (Reject("nor here"), "Reject: nor here"),
    (SystemExit(3), "SystemExit: 3"),
    (StopIteration("odd"), "StopIteration"),
    (asyncio.CancelledError(), "cancelled"),
]


@pytest.mark.parametrize(("error", "text"), ERRORS, ids=[type(error).__name__ for error, _ in ERRORS])
@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_where_it_fails_itself_the_message_is_dead_with_both_errors(world, kind, error, text):
    """K4, L: whatever it raises; and the node lives on."""

    def plain(message):
        raise error

    world.last = raising(error)
    await world.put_keys([None])
    node = await world.falling(fallback=plain if kind == "plain" else None)
    await world.all_over()
    ((reason, reported),) = world.dead_letters()
    assert "failed 2 times" == reason
    assert reported.startswith("ValueError: no good; its fallback failed, too: ")
    assert text.lower() in reported.lower()
    assert (0, 1) == (node.counters.fallen_back, node.counters.dead)
    world.act = world.nothing
    await world.put_keys([None])
    await world.all_over()
    assert 1 == len(world.ids)


@pytest.mark.parametrize("kind", ["async", "plain"])
async def test_one_that_hangs_is_given_up(world, kind):
    """P11: after ack_wait; the message is dead."""
    release = threading.Event()
    world.last = lambda message: asyncio.Event().wait()
    await world.put_keys([None])
    await world.falling(fallback=(lambda message: release.wait(20)) if kind == "plain" else None)
    await world.all_over()
    release.set()
    ((_, reported),) = world.dead_letters()
    silent = "HandlerTimedOut: no sign of life for longer than ack_wait"
    assert f"ValueError: no good; its fallback failed, too: {silent}" == reported


async def test_a_sign_of_life_keeps_it(world):
    """P11."""

    async def last(message):
        for _ in range(6):
            await asyncio.sleep(0.1)
            message.in_progress()

    world.last = last
    await world.put_keys([None])
    node = await world.falling()
    await world.all_over()
    assert 1 == node.counters.fallen_back
    assert [] == world.dead()


async def test_a_key_waits_for_it():
    """Item 4: the message hasn't ended before; other keys go on."""
    async with Falling(acme=ordered(max_attempts=1)) as world:
        first, second = await world.put_keys(["k"] * 2)
        other = await world.put_key("other")
        world.act, world.last = failing(first), Held(first)
        node = await world.falling()
        await until(lambda: other in world.ids and world.taken)
        assert [first] == world.ids_of("k")
        assert [1] == [queue.order.waiting for queue in node.queues.all()]
        world.last.go()
        await world.all_over()
        assert [other, second] == world.ids


async def test_no_more_than_four_of_a_project_at_once(world):
    """M, X9: others wait their turn, and each has it."""
    now, most = 0, 0

    async def last(message):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    world.last = last
    await world.put_keys([None] * 60)
    node = await world.falling(concurrency=64)
    await world.all_over()
    assert 4 == most
    assert 60 == node.counters.fallen_back


async def test_the_nodes_slots_go_on_beside_it(world):
    """E13: nothing behind a failing message waits."""
    put = await world.put_keys([None] * 8)
    world.act, world.last = failing(*put), Held(*put)
    await world.falling(concurrency=2)
    others = await world.put_keys([None] * 20)
    await until(lambda: len(world.taken) == 8 and set(others) == set(world.ids))
    world.last.go()
    await world.all_over()
