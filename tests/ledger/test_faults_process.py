"""How a node ends: in order, with handlers that don't end, and between success and settle."""

import asyncio
from collections import Counter

import pytest

from tests.ledger.puts import one, some
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]


async def test_sigterm_under_load_loses_and_doubles_nothing(world):
    """Fault 3: L, no duplicates, exit inside the grace period."""
    node = await world.node("flaky", drain_grace=10)
    await world.topics("acme", "bolt")
    producer = await world.producer()
    load = asyncio.create_task(world.put(producer, [*some("acme", "m", 10_000), *some("bolt", "m", 10_000)]))
    await until(lambda: len(world.entries()) > 3_000, 20, "the node to be at work")
    clock = asyncio.get_running_loop().time
    asked = clock()
    assert 0 == await node.stop()
    assert clock() - asked < 10
    await load
    await node.start()
    dead = await world.dead_letters()

    async def all_ended() -> bool:
        return world.acknowledged.keys() <= {*world.ids(), *(await dead.ids())}

    await until(all_ended, 30, "all to be handled or dead")
    handlings = Counter((entry.stream, entry.sequence) for entry in world.entries())
    assert {1} == set(handlings.values())
    assert {1} == set(Counter(world.ids()).values())


@pytest.mark.parametrize("handler", [pytest.param("obey", marks=pytest.mark.full), "obey_in_thread"])
async def test_sigterm_with_a_handler_that_never_ends(world, handler):
    """Fault 4: L, D at most the stuck ones, exit inside the grace period."""
    node = await world.node(handler, drain_grace=4, concurrency=16)
    await world.topics("acme", ack_wait=600)
    producer = await world.producer()
    await world.put(producer, some("acme", "stuck", 3, order="once hang"))
    await world.put(producer, some("acme", "m", 500))
    await world.handled(*(put.id for put in some("acme", "m", 500)))
    clock = asyncio.get_running_loop().time
    asked = clock()
    assert 1 == await node.stop()  # it can't say that all was ended
    assert clock() - asked < 4
    await node.start()
    await world.handled()
    begun = Counter(world.ids("begin"))
    assert {f"acme-stuck-{n}": 2 for n in range(3)} == {own: n for own, n in begun.items() if n > 1}
    assert 503 == len(set(world.ids()))


async def test_a_process_that_dies_between_success_and_settle_does_it_again(world):
    """Fault 5: D, L."""
    node = await world.node(concurrency=16)
    await world.topics("acme")
    producer = await world.producer()
    await world.put(producer, some("acme", "before", 300))
    await world.handled()
    await asyncio.sleep(0.5)  # more than the settle interval
    await world.put(producer, [one("acme", "last", order="once die"), *some("acme", "beside", 100)])
    assert 7 == await node.ended()
    await node.start()
    await world.handled()
    again = {own for own, count in Counter(world.ids()).items() if count > 1}
    assert "acme-last" in again
    assert set() == {own for own in again if "before" in own}
    assert len(again) <= 101
