"""Tests of outages of nats-server and etcd with a running node."""

import asyncio
from collections import Counter

import pytest

from evenlane.engine.base.clock import now_ns
from tests.ledger.puts import one, some
from tests.support.until import until

pytestmark = pytest.mark.real


async def test_outage_of_nats_repeats_nothing(world):
    """Fault 12: L, D."""
    node = await world.node("flaky", lease_ttl=10)
    await world.topics("acme", "bolt")
    producer = await world.producer()
    load = asyncio.create_task(world.put(producer, [*some("acme", "m", 3_000), *some("bolt", "m", 3_000)]))
    await until(lambda: len(world.entries()) > 1_000, 60, "the node to be at work")
    await world.servers.nats.kill()
    await asyncio.sleep(6)  # longer than NATS may be away before a node releases its partitions
    await world.servers.nats.start()
    await load
    assert 6_000 == len(world.acknowledged)
    await world.ended(await world.dead_letters())
    assert {1} == set(Counter((entry.stream, entry.sequence) for entry in world.entries()).values())
    assert {node.pid} == {entry.pid for entry in world.entries()}
    assert 0 == await node.stop()


async def test_short_outage_of_etcd_stops_nothing(world):
    """V, P2: shorter than the lease."""
    node = await world.node(lease_ttl=12)
    await world.topics("acme")
    producer = await world.producer()
    await world.servers.etcd.kill()
    killed = now_ns()
    gone = asyncio.create_task(asyncio.sleep(2))
    number = 0
    while not gone.done():
        puts = some("acme", f"during-{number}", 20)
        await world.put(producer, puts)
        await world.handled(*(put.id for put in puts))
        number += 1
    await world.servers.etcd.start()
    await until(lambda: now_ns() - killed > 13_000_000_000, 30, "the time at which the lease would have ended")
    await world.put(producer, some("acme", "after", 20))
    await world.handled()
    assert 0 == node.logged("joining anew")
    assert 1 == len({entry.epoch for entry in world.entries()})
    assert 0 == await node.stop()


async def test_long_outage_of_etcd_stops_the_node_until_its_end(world):
    """O, fault 9: the node starts no handler without a lease that it can trust, and resumes by itself."""
    node = await world.node(lease_ttl=2)
    await world.topics("acme")
    producer = await world.producer()
    await world.put(producer, some("acme", "before", 20))
    await world.handled()
    await world.servers.etcd.kill()
    await asyncio.sleep(2.5)  # longer than the lease
    await world.put(producer, some("acme", "during", 20))
    await asyncio.sleep(1)
    assert {f"acme-before-{n}" for n in range(20)} == set(world.ids("begin"))
    assert node.running
    await world.servers.etcd.start()
    await world.handled()
    # An etcd that comes back gives the lease its whole time again, so perhaps no partition is taken over.
    assert len({entry.epoch for entry in world.entries()}) <= 2
    assert {1} == set(Counter(world.ids("begin")).values())
    await world.put(producer, [one("acme", "last")])
    await world.handled()
    assert 0 == await node.stop()
