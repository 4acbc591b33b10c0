"""A message that kills its process is dead-lettered, and costs its neighbours only time (X11)."""

import asyncio
import random

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.lane.attempts import SUSPECT, attempts
from evenlane.engine.core.message.handler_exceptions import Reject, Retry
from tests.support.node.keyed import QUICK, Begun, PoisonWorld, failing, ordered
from tests.support.node.two import lane_of
from tests.support.node.world import SECOND, is_durable, topic
from tests.support.until import until


@pytest.fixture
async def world():
    async with PoisonWorld() as made:
        yield made


@pytest.mark.parametrize("neighbours", [0, 5])
@pytest.mark.parametrize("most", [2, 3, 4, 5])
async def test_poison_message_is_dead_lettered_after_its_attempts(world, most, neighbours):
    """X11: after N + 1 deaths, as the first one counts no attempt. Its neighbours are handled."""
    world.topics["acme"] = topic(max_attempts=most, backoff=QUICK)
    put = await world.put_keys([None] * (neighbours + 1))
    world.deadly = {put[neighbours // 2]}
    (poison,) = world.deadly
    await world.run_nodes(most + 1)
    assert [poison] * (most + 1) == world.killers
    assert {poison: (f"its process died in attempt {most}", str(most))} == world.dead_letters()
    assert [Begun(poison, n) for n in (1, *range(1, most + 1))] == [
        each for each in world.begun["acme", 0, "mid", None] if each.id == poison
    ]
    assert set(put) - {poison} == set(world.ids)


@pytest.mark.parametrize("neighbours", [0, 5])
async def test_poison_message_with_one_attempt_is_dead_lettered_after_two_deaths(world, neighbours):
    """X11: N + 1, alone or not. A record names it from the start, so that none of its deaths is free."""
    world.topics["acme"] = topic(max_attempts=1)
    put = await world.put_keys([None] * (neighbours + 1))
    world.deadly = {put[0]}
    await world.run_nodes(2)
    assert [put[0]] * 2 == world.killers
    assert {put[0]: ("its process died in attempt 2", "2")} == world.dead_letters()
    assert set(put[1:]) == set(world.ids)


async def test_first_death_costs_no_attempt(world):
    """X11, L: messages in flight are handled again in their first attempt, concurrently, and aren't suspects."""
    put = await world.put_keys([None] * 8)
    await world.crash_with(*put, deaths=1)
    world.begun.clear()
    node = await world.node(world.handle, concurrency=8)
    await until(lambda: len(node.workers.running) == 8)
    assert {(1, False)} == {(message.attempt, message.is_suspect) for message in node.workers.running}
    world.waits.go()
    await world.all_gone()
    assert set(put) == set(world.ids)
    assert {1} == {each.attempt for every in world.begun.values() for each in every}


async def test_second_death_makes_its_neighbours_suspects(world):
    """X11, L: they are handled in their second attempt, one at a time. None is dead-lettered, though it is their last
    attempt.
    """
    world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
    put = await world.put_keys([None] * 8)
    poison, *others = put
    await world.crash_with(*put, concurrency=8)
    world.deadly = {poison}
    world.waits.go()
    await world.run_nodes(1)
    assert [poison] == world.killers
    assert {poison: ("its process died in attempt 2", "2")} == world.dead_letters()
    assert set(others) == set(world.ids)
    assert {(2, True)} == {(message.attempt, message.is_suspect) for message in world.handled}


async def test_fresh_messages_run_while_suspects_wait(world):
    """X11: suspects wait only for each other."""
    put = await world.put_keys([None] * 4)
    await world.crash_with(*put)
    world.begun.clear()
    await world.node(world.handle)
    others = await world.put_keys([None] * 20)
    await until(lambda: set(others) == set(world.ids))
    assert 1 == len(world.suspects)
    assert 21 == len(world.begun["acme", 0, "mid", None])
    world.waits.go()
    await world.all_gone()
    assert set(put) <= set(world.ids)
    assert [] == world.dead()


@pytest.mark.parametrize("kind", ["unordered", "ordered"])
async def test_suspect_that_ends_is_cleared(world, kind):
    """X11: once its handler has ended, in success or failure, it isn't a suspect, neither here nor after a crash."""
    world.topics["acme"] = topic(max_attempts=9, ordered=kind == "ordered", backoff={"base": 5, "jitter": 0})
    fails, succeeds = await world.put_keys(["a", "b"])
    pins = await world.put(b"", project="none")  # keeps the lane from being purged
    await world.crash_with(fails, succeeds)
    world.act = failing(fails)
    node = await world.node(world.handle)
    await until(lambda: succeeds in world.ids and node.counters.failed and not node.in_flight)
    await until(lambda: is_durable(node))
    marks = (await world.settled(lane_of("lanes"))).marks
    if kind == "ordered":
        (mark,) = marks.values()
        assert (2, 0) == (attempts(mark), mark & SUSPECT)
    else:
        assert {} == marks
    assert pins not in world.ids


async def test_delayed_poison_message_is_dead_lettered(world):
    """X11, K1: its attempts are in the settle log of the delay stream."""
    put = [await world.put_key(None, due=world.store.now() + n) for n in range(3)]
    world.deadly = {put[1]}
    await world.run_nodes(4)
    assert [put[1]] * 4 == world.killers
    assert {put[1]: ("its process died in attempt 3", "3")} == world.dead_letters()
    assert {put[0], put[2]} == set(world.ids)


async def test_failures_and_deaths_are_counted_together(world):
    """X11, K2: except for the first death."""

    async def act(message):
        if message.id in world.deadly:
            if message.attempt < 3:
                raise Retry(after=0)
            await until(lambda: is_durable(world.nodes[-1]))  # or the process would forget the failures
        await world.live(message)

    world.topics["acme"], world.act = topic(max_attempts=4, backoff=QUICK), act
    (poison,) = world.deadly = set(await world.put_keys([None]))
    await world.run_nodes(3)
    assert [poison] * 3 == world.killers
    assert {poison: ("its process died in attempt 4", "4")} == world.dead_letters()


async def test_ordered_poison_message_holds_only_its_key(world):
    """X11, K6: its key waits until it is dead-lettered. Earlier failures count, too."""

    async def act(message):
        if message.id in world.deadly:
            if message.attempt == 1:
                raise Retry(after=0)
            await until(lambda: not message.lane.log.unsynced_count)  # or the process would forget the failure
        await world.live(message)

    world.topics["acme"], world.act = ordered(max_attempts=3), act
    before, poison, after = await world.put_keys(["k"] * 3)
    others = await world.put_keys(["a", "b", "c"] * 3)
    world.deadly = {poison}
    await world.run_nodes(3)
    assert [poison] * 3 == world.killers
    assert [before, poison, after] == world.ids_of("k")
    assert {poison: ("its process died in attempt 3", "3")} == world.dead_letters()
    assert {before, after, *others} == set(world.ids)
    world.assert_in_order()


@pytest.mark.parametrize("seed", range(5))
async def test_poison_messages_among_others(world, seed):
    """X11, L: each is dead-lettered after at most N + 1 deaths of its own, and all others are handled. Two suspects
    never run at once.
    """
    draw = random.Random(seed)
    most = world.topics["acme"].max_attempts
    is_ordered = draw.random() < 0.5
    world.topics["acme"] = topic(max_attempts=most, ordered=is_ordered, backoff=QUICK)
    put = []
    for _ in range(draw.randint(8, 30)):
        due = world.store.now() + draw.randint(0, SECOND // 20) if draw.random() < 0.3 else None
        put.append(await world.put_key(draw.choice(["a", "b", "c", "d", None]), due=due, group=draw.choice([0, 1])))
    world.deadly = set(draw.sample(put, draw.randint(1, 4)))
    once = set(draw.sample(sorted(set(put) - world.deadly), 3))  # these fail in their first attempt

    async def act(message):
        for _ in range(draw.choice([0, 1, 5])):
            await asyncio.sleep(0)
        await world.live(message)
        if message.id in once and message.attempt == 1:
            raise ValueError("once")

    world.act = act
    await world.run_nodes((most + 1) * len(world.deadly), concurrency=draw.choice([2, 8, 64]))
    assert all(world.killers.count(message_id) <= most + 1 for message_id in world.deadly)
    assert world.deadly == world.dead_letters().keys()
    assert set(put) - world.deadly == set(world.ids)


async def test_invalid_in_flight_records_are_skipped(world):
    """E11: records of other programs neither stop a takeover nor hide valid records."""
    for n, body in enumerate([b"", b"\xc1", b"no record"]):
        await world.store.put(names.busy_subject("online", f"odd{n}"), b"", body)
    (poison,) = world.deadly = set(await world.put_keys([None]))
    await world.run_nodes(4)
    assert [poison] * 4 == world.killers


async def test_rejected_suspect_is_dead_lettered(world):
    """K4: in the attempt after the deaths."""
    (message_id,) = world.deadly = set(await world.put_keys([None]))
    assert await world.run_node()
    assert await world.run_node()

    async def act(message):
        raise Reject("not wanted")

    world.act = act
    await world.node(world.handle)
    await world.all_gone()
    assert {message_id: ("rejected", "2")} == world.dead_letters()
