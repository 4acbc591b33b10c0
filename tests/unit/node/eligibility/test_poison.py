"""A message that kills its process ends among the dead letters, and costs its neighbours nothing but time (X11)."""

import asyncio
import random

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.lane.attempts import SUSPECT, attempts
from evenlane.engine.core.message.message import Reject, Retry
from tests.support.node.keyed import QUICK, Begun, Deadly, failing, ordered
from tests.support.node.two import lane_of
from tests.support.node.world import SECOND, topic
from tests.support.until import until


@pytest.fixture
async def world():
    async with Deadly() as made:
        yield made


@pytest.mark.parametrize("neighbours", [0, 5])
@pytest.mark.parametrize("most", [2, 3, 4, 5])
async def test_it_is_dead_after_its_attempts(world, most, neighbours):
    """X11: exactly N + 1 deaths, the first of which counts nothing; its neighbours are handled."""
    world.topics["acme"] = topic(max_attempts=most, backoff=QUICK)
    put = await world.put_keys([None] * (neighbours + 1))
    world.deadly = {put[neighbours // 2]}
    (poison,) = world.deadly
    await world.lives(most + 1)
    assert [poison] * (most + 1) == world.killed
    assert {poison: (f"its process died in attempt {most}", str(most))} == world.dead_letters()
    assert [Begun(poison, n) for n in (1, *range(1, most + 1))] == [
        each for each in world.begun["acme", 0, "mid", None] if each.id == poison
    ]
    assert set(put) - {poison} == set(world.ids)


@pytest.mark.parametrize("neighbours", [0, 5])
async def test_with_a_single_attempt_it_is_dead_after_two(world, neighbours):
    """X11: N + 1, alone or not: a record names it from the start, and no death of it is free."""
    world.topics["acme"] = topic(max_attempts=1)
    put = await world.put_keys([None] * (neighbours + 1))
    world.deadly = {put[0]}
    await world.lives(2)
    assert [put[0]] * 2 == world.killed
    assert {put[0]: ("its process died in attempt 2", "2")} == world.dead_letters()
    assert set(put[1:]) == set(world.ids)


async def test_neighbours_at_the_first_death_are_handled_again_as_if_nothing_had_been(world):
    """X11, L: at their first attempt, in company, and nobody suspects them."""
    put = await world.put_keys([None] * 8)
    await world.dies_with(*put, deaths=1)
    world.begun.clear()
    node = await world.node(world.handle, concurrency=8)
    await until(lambda: len(node.workers.running) == 8)
    assert {(1, False)} == {(message.attempt, message.suspect) for message in node.workers.running}
    world.waits.go()
    await world.all_over()
    assert set(put) == set(world.ids)
    assert {1} == {each.attempt for every in world.begun.values() for each in every}


async def test_neighbours_that_were_in_flight_at_the_second_are_handled(world):
    """X11, L: as suspects, at their second attempt, one at a time; none of them is dead-lettered, though none may fail
    twice.
    """
    world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
    put = await world.put_keys([None] * 8)
    poison, *others = put
    await world.dies_with(*put, concurrency=8)
    world.deadly = {poison}
    world.waits.go()
    await world.lives(1)
    assert [poison] == world.killed
    assert {poison: ("its process died in attempt 2", "2")} == world.dead_letters()
    assert set(others) == set(world.ids)
    assert {(2, True)} == {(message.attempt, message.suspect) for message in world.handled}


async def test_others_go_on_beside_a_suspect(world):
    """X11: suspects wait for each other, nobody else for them."""
    put = await world.put_keys([None] * 4)
    await world.dies_with(*put)
    world.begun.clear()
    await world.node(world.handle)
    others = await world.put_keys([None] * 20)
    await until(lambda: set(others) == set(world.ids))
    assert 1 == len(world.suspects)
    assert 21 == len(world.begun["acme", 0, "mid", None])
    world.waits.go()
    await world.all_over()
    assert set(put) <= set(world.ids)
    assert [] == world.dead()


@pytest.mark.parametrize("kind", ["unordered", "ordered"])
async def test_a_suspect_that_ends_is_cleared(world, kind):
    """X11: whoever has been handled once more while the process lived isn't one any longer: neither here nor after the
    next crash; also if it failed.
    """
    world.topics["acme"] = topic(max_attempts=9, ordered=kind == "ordered", backoff={"base": 5, "jitter": 0})
    fails, succeeds = await world.put_keys(["a", "b"])
    pins = await world.put(b"", project="none")  # keeps the lane from being purged
    await world.dies_with(fails, succeeds)
    world.act = failing(fails)
    node = await world.node(world.handle)
    await until(lambda: succeeds in world.ids and node.counters.failed and not node.in_flight)
    await until(lambda: not any(lane.log.unsynced_count for p in node.partitions.values() for lane in p.both))
    marks = (await world.settled(lane_of("lanes"))).marks
    if kind == "ordered":
        (mark,) = marks.values()
        assert (2, 0) == (attempts(mark), mark & SUSPECT)
    else:
        assert {} == marks
    assert pins not in world.ids


async def test_a_delayed_one(world):
    """X11, K1: it is counted in the log of the later stream."""
    put = [await world.put_key(None, due=world.store.now() + n) for n in range(3)]
    world.deadly = {put[1]}
    await world.lives(4)
    assert [put[1]] * 4 == world.killed
    assert {put[1]: ("its process died in attempt 3", "3")} == world.dead_letters()
    assert {put[0], put[2]} == set(world.ids)


async def test_one_that_had_failed_before(world):
    """X11, K2: failures and deaths are attempts alike, and are counted together; but for the first death."""

    async def act(message):
        if message.id in world.deadly and message.attempt < 3:
            raise Retry(after=0)
        await world.live(message)

    world.topics["acme"], world.act = topic(max_attempts=4, backoff=QUICK), act
    (poison,) = world.deadly = set(await world.put_keys([None]))
    await world.lives(3)
    assert [poison] * 3 == world.killed
    assert {poison: ("its process died in attempt 4", "4")} == world.dead_letters()


async def test_an_ordered_one(world):
    """X11, item 4: its key waits for it until it is dead, other keys don't; failures before count as well."""

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
    await world.lives(3)
    assert [poison] * 3 == world.killed
    assert [before, poison, after] == world.ids_of("k")
    assert {poison: ("its process died in attempt 3", "3")} == world.dead_letters()
    assert {before, after, *others} == set(world.ids)
    world.in_order()


@pytest.mark.parametrize("seed", range(5))
async def test_many_of_them_in_any_company(world, seed):
    """X11, L: each is dead after at most N + 1 deaths of its own; everyone else is handled, none dead-lettered; two
    suspects never run at once.
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
    once = set(draw.sample(sorted(set(put) - world.deadly), 3))  # these fail at their first attempt

    async def act(message):
        for _ in range(draw.choice([0, 1, 5])):
            await asyncio.sleep(0)
        await world.live(message)
        if message.id in once and message.attempt == 1:
            raise ValueError("once")

    world.act = act
    await world.lives((most + 1) * len(world.deadly), concurrency=draw.choice([2, 8, 64]))
    assert all(world.killed.count(own) <= most + 1 for own in world.deadly)
    assert world.deadly == world.dead_letters().keys()
    assert set(put) - world.deadly == set(world.ids)


async def test_what_is_no_record_is_passed_over(world):
    """E11: what somebody else wrote there stops no take-over, and hides nobody's record."""
    for n, body in enumerate([b"", b"\xc1", b"no record"]):
        await world.store.put(names.busy_subject("online", f"odd{n}"), b"", body)
    (poison,) = world.deadly = set(await world.put_keys([None]))
    await world.lives(4)
    assert [poison] * 4 == world.killed


async def test_a_rejected_suspect_is_dead_as_any_other(world):
    """K4: in the attempt after its process's death."""
    (own,) = world.deadly = set(await world.put_keys([None]))
    assert await world.next_node()
    assert await world.next_node()

    async def act(message):
        raise Reject("not wanted")

    world.act = act
    await world.node(world.handle)
    await world.all_over()
    assert {own: ("rejected", "2")} == world.dead_letters()
