"""The queue limit on nats-server: lowering it loses no message, also when the process at work dies."""

import asyncio
import time

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost, QueueFull
from evenlane.engine.store.jetstream import stream_configs
from evenlane.engine.store.jetstream.api import queue_limit
from tests.support.store.feeding import fill, subject
from tests.support.store.harness import LANE, JetStreamHarness
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
async def world(nats_server):
    made = await JetStreamHarness(nats_server).open()
    yield made
    await made.close()


async def config(world, lane=LANE):
    return (await world.api(f"STREAM.INFO.{names.stream(world.env, lane)}"))["config"]


class HookedConnection:
    """A connection that awaits `before(verb, request)` before each request."""

    def __init__(self, inner, before):
        self._inner, self._before = inner, before

    async def api(self, verb, request=None, **options):
        await self._before(verb, request)
        return await self._inner.api(verb, request, **options)

    async def api_as(self, kind, verb, request=None, **options):
        await self._before(verb, request)
        return await self._inner.api_as(kind, verb, request, **options)


async def lower(world, limit, before):
    """Lower the limit of the lane's stream, as a process that prepares it."""
    present = await config(world)
    desired = stream_configs.lane_config(world.env, LANE, "file", 1, 30, limit)
    async with world.connected() as connection:
        await queue_limit.adjust(HookedConnection(connection, before), [desired], {present["name"]: present})


def is_check_of_quiet_stream(verb, request):
    """Whether the request is one of those that wait for puts in transit, after the stream refuses new ones."""
    return verb.startswith("STREAM.INFO.") and request is None


async def test_server_deletes_messages_above_lowered_limit(world):
    """The reason for queue_limit.py. If a release of nats-server stops doing so, it isn't needed any more."""
    await fill(world, 5)
    limited = await config(world) | queue_limit.settings(3)
    await world.api(f"STREAM.UPDATE.{limited['name']}", limited)
    assert {subject(world.env): 3} == await world.store.counts(LANE)


async def test_limit_changes_no_other_setting(world):
    before = await config(world)
    await world.store.prepare([LANE], 4)
    await world.store.prepare([LANE], 2)
    after = await config(world)
    changed = {key for key in after if after[key] != before.get(key)} - {"metadata"}
    assert {"max_msgs_per_subject", "discard_new_per_subject"} == changed
    assert 2 == after["max_msgs_per_subject"]
    await world.store.prepare([LANE], -1)
    assert -1 == (await config(world))["max_msgs_per_subject"]


async def test_puts_during_lowering_are_lost_and_may_be_retried(world):
    """L: they are neither stored nor refused finally."""
    is_closed, resume = asyncio.Event(), asyncio.Event()

    async def pause(verb, request):
        if is_check_of_quiet_stream(verb, request):
            is_closed.set()
            await resume.wait()

    await fill(world, 2)
    lowering = asyncio.create_task(lower(world, 3, pause))
    await is_closed.wait()
    with pytest.raises(Lost, match="while its limit is being lowered"):
        await fill(world, 1)
    await world.store.prepare([LANE], 3)  # neither waits for the other process nor refuses the stream
    resume.set()
    await lowering
    await fill(world, 1)
    with pytest.raises(QueueFull):
        await fill(world, 1)
    assert {subject(world.env): 3} == await world.store.counts(LANE)


async def test_messages_put_between_check_and_close_are_not_deleted(world):
    """L: the check that counts is the one after the stream refuses new messages."""
    puts = iter([5])

    async def put_late(verb, _request):
        if verb.startswith("STREAM.UPDATE."):
            await fill(world, next(puts, 0))

    await lower(world, 3, put_late)
    assert [6] == await fill(world, 1)
    assert {subject(world.env): 6} == await world.store.counts(LANE)


async def test_cancelled_lowering_opens_stream_again(world):
    async def cancel(verb, request, left=iter([True])):  # noqa: B008 - once
        if is_check_of_quiet_stream(verb, request) and next(left, False):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await lower(world, 3, cancel)
    assert [1, 2, 3, 4] == await fill(world, 4)


@pytest.mark.parametrize("age", [0, 60])
async def test_lowering_of_dead_process_is_completed_after_a_while(world, age):
    """The process was killed between its two updates."""
    await fill(world, 2)
    left = await config(world) | {"max_msgs": 1, "metadata": {"evenlane-lowering": f"{time.time() - age:.0f} somebody"}}
    await world.api(f"STREAM.UPDATE.{left['name']}", left)
    await world.store.prepare([LANE], 3)
    if age:
        await fill(world, 1)
    else:
        with pytest.raises(Lost):
            await fill(world, 1)
    assert (3 if age else 1) == (await config(world))["max_msgs_per_subject" if age else "max_msgs"]


async def test_concurrent_lowerings_agree(world):
    await fill(world, 2)
    others = [world.another() for _ in range(6)]
    for store in others:
        await store.open()
    await asyncio.gather(*(store.prepare([LANE], 3) for store in others))

    async def is_lowered() -> bool:
        return (await config(world))["max_msgs_per_subject"] == 3 and (await config(world))["max_msgs"] == -1

    await until(is_lowered)
    await fill(world, 1)
    with pytest.raises(QueueFull):
        await fill(world, 1)
    for store in others:
        await store.close()
