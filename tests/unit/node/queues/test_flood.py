"""A node whose feed lags by bytes leaves bodies in the stream, and loses none of them (L, F10)."""

from collections import Counter

from evenlane.engine.base import names
from evenlane.engine.core.queue.entry import MemoryBudget
from tests.support.node.world import World, change, topic
from tests.support.until import until

KIB, MIB = 1 << 10, 1 << 20
LARGE = b"x" * (512 * KIB)


def small() -> MemoryBudget:
    return MemoryBudget(payload_bytes=8 * MIB)


async def test_messages_of_a_flood_are_handled_once_with_their_bodies():
    """With small messages in between."""
    async with World(flood=topic(), acme=topic()) as world:
        put = Counter()
        for number in range(60):
            for project, body in (("flood", b"%04d" % number + LARGE), ("acme", b"%04d" % number)):
                await world.put(body, project, group=number % 10)
                put[project, len(body), body[:4]] += 1
        node = await world.node(limits=small())
        await world.all_gone(30)
        assert put == Counter((each.project, len(each.body), each.body[:4]) for each in world.handled)
        assert 0 == node.limits.used_bytes


async def test_bodies_of_a_paused_flood_are_handled_later():
    async with World(flood=topic(state="paused"), acme=topic()) as world:
        await world.put_many(100, project="acme")
        ids = [await world.put(LARGE, "flood") for _ in range(60)]
        await world.put(b"small")
        node = await world.node(limits=small())
        await until(lambda: len(world.handled) == 101 and node.backlog == 60)
        change(world, node, topic(), "flood")
        await world.all_gone(30)
        assert ids == [message.id for message in world.handled if message.project == "flood"]


async def test_unroutable_message_in_a_flood_keeps_its_body():
    """L."""
    async with World(flood=topic()) as world:
        for _ in range(60):
            await world.put(LARGE, "flood")
        unroutable = names.lane_subject("online", world.busy_lane.partition, "flood", 0, "urgent")
        await world.store.put(unroutable, b"", b"whole")
        await world.node(limits=small())
        await world.all_gone(30)
        assert [b"whole"] == [dead_letter.body for dead_letter in world.dead()]
