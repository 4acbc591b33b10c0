"""Handlers of each kind, and the settlement of their messages."""

import asyncio
import threading
from datetime import UTC, datetime

import pytest

from evenlane.engine.core.message.handler_exceptions import Reject, Retry
from evenlane.engine.core.message.message import batch
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.handler import Handler, load
from tests.support.node.world import SECOND, World, topic
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time


async def test_handled_messages_are_settled_and_removed():
    """E11."""
    async with World() as world:
        put = await world.put_many(50)
        await world.node()
        await world.all_gone()
        assert put == world.ids


async def test_plain_handler_runs_in_threads():
    """K9: as many plain functions at once as there are workers."""
    barrier = threading.Barrier(4, timeout=30)
    async with World() as world:

        def handle(message):
            barrier.wait()
            world.handled.append(message)

        await world.put_many(4)
        await world.node(handle, concurrency=4)
        await world.all_gone()
        assert 4 == len(world.handled)


async def test_batch_has_up_to_max_messages_of_one_project():
    batches = []
    async with World(acme=topic(), bolt=topic()) as world:

        @batch(max=10)
        async def handle(messages):
            batches.append(messages)

        await world.put_many(35)
        await world.put_many(5, project="bolt")
        await world.node(handle)
        await world.all_gone()
    assert 40 == sum(len(each) for each in batches)
    assert 10 == max(len(each) for each in batches)
    assert all(len({message.project for message in each}) == 1 for each in batches)


async def test_batch_fails_as_a_whole():
    """E13: the failure counts as an attempt of each message."""
    attempts = []
    async with World(acme=topic(max_attempts=2)) as world:

        @batch(max=5)
        def handle(messages):
            attempts.extend(message.attempt for message in messages)
            raise RuntimeError("no")

        await world.put_many(5)
        await world.node(handle)
        await world.all_gone()
        assert [1] * 5 + [2] * 5 == sorted(attempts)
        assert 5 == len(world.dead())


async def test_message_has_documented_fields():
    """E11: id, project, group, priority, key, body, headers, attempt, position, epoch, times, node."""
    async with World() as world:
        before = datetime.now(UTC)
        await world.put(
            b"\xff\x00", id="order-1", group=3, priority="high", headers={h.KEY: "k", "traceparent": "00-1"}
        )
        await world.node(node_id="n1")
        message = (await until(lambda: world.handled))[0]
        assert ("order-1", "acme", 3, "high", "k", b"\xff\x00") == (
            message.id, message.project, message.group, message.priority, message.key, message.body,
        )  # fmt: skip
        assert {"traceparent": "00-1"} == message.headers
        assert (1, 1, 1, "n1") == (message.attempt, message.sequence, message.epoch, message.node)
        assert abs((message.put_at - before).total_seconds()) < 5
        assert message.due_at is None


async def test_retry_keeps_id_and_put_time():
    """K2, E13: a retry is a delayed message with the id and put time of the first put."""
    seen = []
    async with World() as world:

        async def handle(message):
            seen.append((message.id, message.put_ns, message.attempt, message.body))
            if message.attempt < 3:
                raise ValueError("not yet")

        await world.put(b"body", id="a:b:c")
        node = await world.node(handle)
        await world.all_gone()
        assert [1, 2, 3] == [attempt for _, _, attempt, _ in seen]
        assert 1 == len({(message_id, put, body) for message_id, put, _, body in seen})
        assert "a:b:c" == seen[0][0]
        assert (1, 2, 2) == (node.counters.handled, node.counters.failed, node.counters.retried)


async def test_message_is_dead_lettered_after_its_last_attempt():
    """K4, E13: with reason, attempts and origin."""
    async with World(acme=topic(max_attempts=2)) as world:

        async def handle(message):
            raise ValueError("always\nbad")

        await world.put(b"body", id="m", headers={"own": "1"})
        await world.node(handle)
        await world.all_gone()
        (dead,) = world.dead()
        found = h.decode(dead.headers)
        assert ("dead.online.acme", b"body") == (dead.subject, dead.body)
        assert ("failed 2 times", "ValueError: always bad", "2", "1") == (
            found[h.REASON], found[h.ERROR], found[h.ATTEMPT], found["own"],
        )  # fmt: skip
        assert found[h.ORIGIN].startswith("LATER_online_")


async def test_reject_dead_letters_at_once():
    async with World() as world:

        async def handle(message):
            raise Reject("malformed")

        await world.put()
        node = await world.node(handle)
        await world.all_gone()
        assert (1, 0) == (node.counters.dead, node.counters.retried)
        assert "malformed" == h.value(world.dead()[0].headers, h.ERROR)


async def test_retry_waits_for_its_own_delay():
    """K2: `Retry(after)` counts as an attempt."""
    times = []
    async with World() as world:

        async def handle(message):
            times.append(asyncio.get_running_loop().time())
            if message.attempt == 1:
                raise Retry(after=0.3)

        await world.put()
        await world.node(handle)
        await world.all_gone()
        assert 2 == len(times)
        assert times[1] - times[0] >= 0.29


async def test_handler_is_cancelled_after_ack_wait_and_its_message_retried():
    """P11: it gave no sign of life."""
    async with World(acme=topic(ack_wait=0.2)) as world:

        async def handle(message):
            if message.attempt == 1:
                await asyncio.Event().wait()
            world.handled.append(message)

        await world.put()
        node = await world.node(handle)
        await world.all_gone()
        assert [2] == [message.attempt for message in world.handled]
        assert 1 == node.counters.given_up


@in_virtual_time
async def test_in_progress_restarts_ack_wait():
    """P11."""
    async with World(acme=topic(ack_wait=0.3)) as world:

        async def handle(message):
            loop = asyncio.get_running_loop()
            end = loop.time() + 0.6
            while loop.time() < end:
                await message.in_progress()
                await asyncio.sleep(0.02)
            world.handled.append(message)

        await world.put()
        node = await world.node(handle)
        await world.all_gone()
        assert [1] == [message.attempt for message in world.handled]
        assert 0 == node.counters.failed


async def test_timed_out_thread_keeps_its_slot():
    """P11: a thread can't be cancelled. Its message is retried, and its slot is busy until the thread ends."""
    release = threading.Event()
    async with World(acme=topic(ack_wait=0.2)) as world:

        def handle(message):
            if message.attempt == 1:
                release.wait(60)
            world.handled.append(message)

        await world.put()
        node = await world.node(handle, concurrency=8)
        await until(lambda: world.handled and len(node.workers.running) == 1)  # (a thread ends before its slot is free)
        assert ([2], [1]) == tuple([each.attempt for each in those] for those in (world.handled, node.workers.running))
        release.set()
        await until(lambda: not node.workers.running)
        await world.all_gone()
        assert 1 == node.counters.handled


async def test_node_stops_when_too_many_threads_hang():
    """P11: more than a quarter of its slots."""
    release, reasons = threading.Event(), []
    async with World(acme=topic(ack_wait=0.1, max_attempts=1)) as world:
        await world.put_many(3)
        await world.node(lambda message: release.wait(60), concurrency=8, on_stop=reasons.append)
        await until(lambda: reasons)
        assert "3 of 8 handler threads hang" in reasons[0]
        release.set()


async def test_delayed_message_waits_for_its_due_time():
    """K1."""
    async with World() as world:
        due = world.store.now() + SECOND // 2
        await world.put(due=due)
        await world.node()
        message = (await until(lambda: world.handled))[0]
        assert world.store.now() >= due
        assert message.due_at is not None
        await world.all_gone()


@pytest.mark.parametrize(("name", "is_due"), [("Evenlane-Due", True), ("evenlane-due", False)])
async def test_due_header_on_a_lane_subject_delays_nothing(name, is_due):
    """L: the subject decides (docs/reference/messages.md). Header names are case-sensitive."""
    async with World(acme=topic()) as world:
        due = world.store.now() + 3600 * SECOND
        await world.put(headers={name: str(due)})
        node = await world.node()
        await until(lambda: node.counters.handled == 1)
        (message,) = world.handled
        assert is_due == (message.due_at is not None)
        assert {} == message.headers


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ("nonsense", "not of the form MODULE:FUNCTION"),
        ("no_such_module_x:f", "there is no module 'no_such_module_x'"),
        ("tests.support.node.bad_import:f", "importing tests.support.node.bad_import failed: ZeroDivisionError"),
        ("tests.support.node.exits:f", "importing tests.support.node.exits failed: SystemExit: 3"),
        ("tests.support.node.world:topics", "has no 'topics'; did you mean 'topic'?"),
    ],
)
def test_load_error_of_a_handler_is_one_sentence(spec, error):
    with pytest.raises(ConfigError) as caught:
        load(spec)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


def _generator(message):
    yield message


async def _stream(message):
    yield message


@pytest.mark.parametrize("handler", [5, lambda: None, lambda a, b: None, _generator, _stream])
def test_invalid_handler_is_rejected(handler):
    """A handler takes one argument. One that would never run must not count as handled (L)."""
    with pytest.raises(ConfigError, match="handler"):
        Handler.of(handler)


async def test_plain_handler_that_returns_a_coroutine_fails():
    """L: `lambda m: handle(m)` with an async `handle` runs nothing, so it must not succeed."""
    async with World(acme=topic(max_attempts=1)) as world:
        await world.put()

        def handle(message):
            return world.note(message)

        node = await world.node(handle)
        await world.all_gone()
        assert (0, 1) == (node.counters.handled, node.counters.dead)
        assert "async def" in h.value(world.dead()[0].headers, h.ERROR)
