"""The store port in memory: the contract, and the faults that only it offers."""

import asyncio

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Full, Lost, Refused
from evenlane.engine.core.wire import headers as h
from evenlane.engine.errors import Unreachable
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from tests.contract.store.contract import StoreContract
from tests.contract.store.dead_letters import check_expiry
from tests.support.store.feeding import feeding, fill, logged, subject
from tests.support.store.harness import LANE, MemoryStoreHarness

_SECOND = 1_000_000_000


@pytest.fixture
async def world():
    made = await MemoryStoreHarness().open()
    yield made
    await made.close()


class TestMemory(StoreContract):
    pass


async def test_id_is_accepted_again_after_duplicate_window():
    now = [10 * _SECOND]
    world = await MemoryStoreHarness(clock=lambda: now[0], duplicate_window_s=30).open()
    to, block = subject(world.env), h.encode({h.ID: "acme:1"})
    await world.store.put(to, block, b"")
    now[0] += 30 * _SECOND - 1
    assert (await world.store.put(to, block, b"")).duplicate
    now[0] += 1
    assert (2, False) == (await world.store.put(to, block, b""))[1:]
    await world.close()


async def test_expired_dead_letters_are_removed():
    """K4."""
    world = await MemoryStoreHarness(duplicate_window_s=1).open()
    await check_expiry(world)
    await world.close()


async def test_arrival_times_are_unique_though_clock_is_stopped():
    """A lane's identity is the time of its highest sequence."""
    world = await MemoryStoreHarness(clock=lambda: 7).open()
    await fill(world, 2)
    world.server.roll_back(world.env, LANE, 1)
    await fill(world, 1)
    assert [7, 9] == [each.at for each in world.server.messages(names.stream(world.env, LANE))]
    await world.close()


async def test_roll_back_gives_same_sequences_to_new_messages(world):
    await fill(world, 5)
    before, incarnation = await world.store.state(LANE), world.store.incarnation
    async with feeding(world.store) as taken:
        await taken.got(5)
        taken.resume_at = lambda _: 4
        world.server.roll_back(world.env, LANE, 3)
        await taken.until(lambda: taken.breaks)
        assert [4, 5] == await fill(world, 2)
        assert [1, 2, 3, 4, 5, 4, 5] == await taken.got(7)
    after = await world.store.state(LANE)
    assert (before.created, 5) == (after.created, after.last)
    assert before.at != after.at
    assert incarnation < world.store.incarnation


async def test_server_refuses_puts_until_accept(world):
    world.server.refuse("dead.")
    world.server.refuse(subject(world.env), Full("no more"))
    with pytest.raises(Refused):
        await world.store.put(names.dead_subject(world.env, "acme"), b"", b"")
    with pytest.raises(Full, match="no more"):
        await world.store.put(subject(world.env), b"", b"")
    world.server.accept("dead.")
    assert 1 == (await world.store.put(names.dead_subject(world.env, "acme"), b"", b"")).sequence


async def test_withheld_acks_are_lost_with_connection(world):
    """A producer can't know whether its requests were carried out."""
    world.server.delay_acks()
    put = world.store.put(subject(world.env), b"", b"")
    append = world.store.append_log(LANE, b"1", 0)
    assert 1 == (await world.second.state(LANE)).last
    assert (False, False) == (put.done(), append.done())
    world.server.disconnect(world.store)
    for future in (put, append):
        with pytest.raises(Lost):
            await future
    world.server.delay_acks(0)
    assert [b"1"] == (await logged(world.second, LANE))[0]


async def test_withheld_acks_come_when_released(world):
    world.server.delay_acks()
    put = world.store.put(subject(world.env), b"", b"")
    world.server.delay_acks(0)
    assert 1 == (await put).sequence


async def test_single_store_can_be_disconnected(world):
    world.server.disconnect(world.store)
    with pytest.raises(Lost):
        await world.store.state(LANE)
    assert 0 == (await world.second.state(LANE)).last
    world.server.reconnect(world.store)
    assert 0 == (await world.store.state(LANE)).last


async def test_disconnected_server_is_unreachable_and_closed_store_lost(world):
    await world.second.close()
    with pytest.raises(Lost):
        await world.second.state(LANE)
    world.server.disconnect()
    with pytest.raises(Unreachable):
        await MemoryStore(world.server, world.env).open()


async def test_environments_are_separate():
    """E1."""
    server = MemoryServer()
    stores = [MemoryStore(server, env) for env in ("online", "sandbox")]
    for store in stores:
        await store.open()
        await store.prepare([LANE])
    await stores[0].put(subject("online"), b"", b"")
    assert [1, 0] == [(await store.state(LANE)).last for store in stores]
    await asyncio.gather(*(store.close() for store in stores))
