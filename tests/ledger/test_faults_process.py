"""Tests of a node's ends: clean, with handlers that never end, and between success and settlement."""

import asyncio
from collections import Counter

import pytest

from tests.ledger import settle_logs
from tests.ledger.puts import one, some
from tests.support.until import until

pytestmark = pytest.mark.real


async def test_sigterm_under_load_loses_and_repeats_nothing(world):
    """Fault 3: L, no duplicates, exit within the grace period."""
    grace_s = 60
    node = await world.node("flaky", drain_grace=grace_s)
    await world.topics("acme", "bolt")
    producer = await world.producer()
    load = asyncio.create_task(world.put(producer, [*some("acme", "m", 4_000), *some("bolt", "m", 4_000)]))
    await until(lambda: len(world.entries()) > 1_000, 60, "the node to be at work")
    clock = asyncio.get_running_loop().time
    asked = clock()
    assert 0 == await node.stop()
    assert clock() - asked < grace_s
    await load
    await node.start()
    await world.ended(await world.dead_letters())
    handlings = Counter((entry.stream, entry.sequence) for entry in world.entries())
    assert {1} == set(handlings.values())
    assert {1} == set(Counter(world.ids()).values())


async def test_sigterm_repeats_only_stuck_threads(world):
    """Fault 4: L, D, exit within the grace period. Stuck coroutines: test_cluster_moves.py."""
    grace_s = 2
    node = await world.node("obey_in_thread", drain_grace=grace_s, concurrency=16)
    await world.topics("acme", ack_wait=600)
    producer = await world.producer()
    await world.put(producer, some("acme", "stuck", 3, order="once hang"))
    await world.put(producer, some("acme", "m", 500))
    await world.handled(*(put.id for put in some("acme", "m", 500)))
    clock = asyncio.get_running_loop().time
    asked = clock()
    assert 1 == await node.stop()  # not all handlers have ended
    assert clock() - asked < 30  # the grace, and time for a busy machine: the handlers never end
    await node.start()
    await world.handled()
    begun = Counter(world.ids("begin"))
    assert {f"acme-stuck-{n}": 2 for n in range(3)} == {own: n for own, n in begun.items() if n > 1}
    assert 503 == len(set(world.ids()))


async def test_death_between_success_and_settlement_repeats_the_message(world):
    """Fault 5: D, L."""
    node = await world.node(concurrency=16, lease_ttl=2)
    await world.topics("acme")
    producer = await world.producer()
    await world.put(producer, some("acme", "before", 300))
    await world.handled()

    async def settled() -> bool:
        logs = await settle_logs.read(world.settings, 8)
        return all(sequence in logs[stream].settled() for stream, sequence in world.acknowledged.values())

    await until(settled, what="all to be settled")
    await world.put(producer, [one("acme", "last", order="once die"), *some("acme", "others", 100)])
    assert 7 == await node.ended()
    await node.start()
    await world.handled()
    again = {own for own, count in Counter(world.ids()).items() if count > 1}
    assert "acme-last" in again
    assert set() == {own for own in again if "before" in own}
    assert len(again) <= 101
