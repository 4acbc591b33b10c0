"""The queues' limit on nats-server: what lowering it must not do, and what a process that dies at it leaves behind."""

import asyncio
import time

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost, QueueFull
from evenlane.engine.errors import ConfigError
from evenlane.engine.store.jetstream import streams
from evenlane.engine.store.jetstream.api import queue_limit
from tests.support.store.feeding import fill, subject
from tests.support.store.harness import LANE, LATER, JetStreamHarness
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
async def world(nats_server):
    made = await JetStreamHarness(nats_server).open()
    yield made
    await made.close()


async def config(world, lane=LANE):
    return (await world.api(f"STREAM.INFO.{names.stream(world.env, lane)}"))["config"]


async def test_the_server_deletes_what_is_above_a_lowered_limit(world):
    """Why it isn't simply lowered: should a release of nats-server stop to do so, queue_limit.py is for nothing."""
    await fill(world, 5)
    limited = await config(world) | queue_limit.settings(3)
    await world.api(f"STREAM.UPDATE.{limited['name']}", limited)
    assert {subject(world.env): 3} == await world.store.counts(LANE)


async def test_what_else_the_stream_is_stays_as_it_is(world):
    before = await config(world)
    await world.store.prepare([LANE], 4)
    await world.store.prepare([LANE], 2)
    after = await config(world)
    changed = {key for key in after if after[key] != before.get(key)} - {"metadata"}
    assert {"max_msgs_per_subject", "discard_new_per_subject"} == changed
    assert 2 == after["max_msgs_per_subject"]
    await world.store.prepare([LANE], -1)
    assert -1 == (await config(world))["max_msgs_per_subject"]


async def test_while_it_is_lowered_no_put_is_stored_or_refused_for_good(world, monkeypatch):
    """L: it is tried again, under the same id."""
    looking, go_on = asyncio.Event(), asyncio.Event()
    still = queue_limit._still

    async def slowly(*arguments) -> None:
        looking.set()
        await go_on.wait()
        await still(*arguments)

    monkeypatch.setattr(queue_limit, "_still", slowly)
    await fill(world, 2)
    lowering = asyncio.create_task(world.second.prepare([LANE], 3))
    await looking.wait()
    with pytest.raises(Lost, match="while its limit is being lowered"):
        await fill(world, 1)
    await world.store.prepare([LANE], 3)  # somebody is at it: no reason to wait, nor to refuse the stream
    go_on.set()
    await lowering
    await fill(world, 1)
    with pytest.raises(QueueFull):
        await fill(world, 1)
    assert {subject(world.env): 3} == await world.store.counts(LANE)


async def test_what_came_between_the_look_and_the_refusal_is_not_deleted(world, monkeypatch):
    """L: the look that counts is the one behind closed doors."""
    above, looks = queue_limit._above, []

    async def at_first_not(*arguments) -> str:
        looks.append(arguments)
        return await above(*arguments) if len(looks) > 1 else ""

    monkeypatch.setattr(queue_limit, "_above", at_first_not)
    await fill(world, 5)
    await world.store.prepare([LANE], 3)
    assert 2 == len(looks)
    assert [6] == await fill(world, 1)
    assert {subject(world.env): 6} == await world.store.counts(LANE)


async def test_what_was_given_up_in_the_middle_opens_the_stream_again(world, monkeypatch):
    async def cut(*_: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(queue_limit, "_still", cut)
    with pytest.raises(asyncio.CancelledError):
        await world.second.prepare([LANE], 3)
    assert [1, 2, 3, 4] == await fill(world, 4)


@pytest.mark.parametrize("age", [0, 60])
async def test_what_a_dead_process_has_left_is_taken_up_after_a_while(world, age):
    """kill -9 between the two updates."""
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


async def test_many_that_lower_it_at_the_same_moment_agree(world):
    await fill(world, 2)
    others = [world.another() for _ in range(6)]
    for store in others:
        await store.open()
    await asyncio.gather(*(store.prepare([LANE], 3) for store in others))

    async def lowered() -> bool:
        return (await config(world))["max_msgs_per_subject"] == 3 and (await config(world))["max_msgs"] == -1

    await until(lowered)
    await fill(world, 1)
    with pytest.raises(QueueFull):
        await fill(world, 1)
    for store in others:
        await store.close()


@pytest.mark.parametrize("lane", [LANE._replace(partition=60), LATER._replace(partition=60)])
async def test_a_limit_that_deletes_the_oldest_or_refuses_retries_is_refused(world, lane):
    name = names.stream(world.env, lane)
    await world.api(
        f"STREAM.CREATE.{name}", streams.lane_config(world.env, lane, "file", 1, 30) | {"max_msgs_per_subject": 5}
    )
    with pytest.raises(ConfigError, match=rf"stream {name} has max_msgs_per_subject 5, which would lose messages"):
        await world.store.prepare([lane])
