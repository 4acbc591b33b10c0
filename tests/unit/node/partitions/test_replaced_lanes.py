"""Lanes that are replaced or rolled back: new messages with old sequences are handled, and never removed (L)."""

import asyncio
from types import SimpleNamespace

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from tests.support.node.world import World, topic
from tests.support.until import until


@pytest.mark.parametrize("alive", [True, False])
async def test_messages_of_a_replaced_stream_are_handled(alive):
    """L: a stream that was deleted and created again gives its new messages sequences of settled ones."""
    async with World() as world:
        await world.put_many(50)
        node = await world.node()
        await world.all_gone()
        if not alive:
            await world.crash(node)
        lane = LaneId("lanes", world.handled[0].partition)
        world.server.replace("online", lane)
        new = await world.put_many(50)
        if not alive:
            await world.node()
        await world.all_gone()
        assert set(new) <= set(world.ids)
        assert 100 == len(world.handled)
        assert not alive or 1 == node.partitions[lane.partition].lane.generation


@pytest.mark.parametrize("alive", [True, False])
async def test_messages_after_a_rollback_are_handled(alive):
    """L: they have the sequences of settled messages; none is skipped or purged."""
    async with World(still=topic(state="paused"), acme=topic()) as world:
        await world.put(project="still")
        lane = world.busy_lane
        group = world.group_in(lane.partition)
        await world.put_many(60, group=group)
        node = await world.node()
        await until(lambda: len(world.handled) == 60)
        await until(lambda: not node.partitions[lane.partition].lane.log.unsynced_count)
        if not alive:
            await world.crash(node)
        world.server.roll_back("online", lane, 10)
        new = await world.put_many(60, group=group)
        if not alive:
            await world.node()
        await until(lambda: set(new) <= set(world.ids), what="all messages put after the rollback")


async def test_results_of_a_replaced_stream_are_stale():
    """L: a message that ran when its stream was replaced must not settle the sequence of another message."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            if message.body == b"old":
                await gate.wait()
            world.handled.append(message)

        for _ in range(4):
            await world.put(b"old")
        node = await world.node(handle)
        await until(lambda: len(node.workers.running) == 4)
        world.server.replace("online", LaneId("lanes", node.workers.running[0].partition))
        new = [await world.put(b"new") for _ in range(4)]
        await until(lambda: set(new) <= set(world.ids))
        gate.set()
        await world.all_gone()
        assert 4 == node.counters.void
        assert 4 == node.counters.handled


class HeldCall:
    """Calls `call`; the first time, only after `go`."""

    def __init__(self, call):
        self._call = call
        self.reached, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self, *arguments):
        if not self.reached.is_set():
            self.reached.set()
            await self.go.wait()
        return await self._call(*arguments)


@pytest.mark.parametrize(
    ("waits_for", "noticed"),
    [
        ("the stream's identity", ""),
        ("the stream's identity", "and verified"),
        ("its turn", "not verified"),
        ("its turn", "and verified"),
    ],
)
async def test_planned_delete_never_hits_another_message(waits_for, noticed):
    """L: after a rollback, its sequence is another message's, whether the node has noticed the rollback or not."""
    async with World(still=topic(state="paused"), acme=topic()) as world:
        await world.put(project="still")
        lane = world.busy_lane
        group = world.group_in(lane.partition)
        node = await world.node()
        settler, own = node.settler, node.partitions[lane.partition].lane
        settler.truncator.pinned_for = 1 << 62
        await world.put_many(60, group=group)
        await until(lambda: len(world.handled) == 60 and not own.log.unsynced_count)
        if waits_for == "its turn":
            held = HeldCall(settler.truncator._limiter.acquire)
            settler.truncator._limiter = SimpleNamespace(acquire=held)
        else:
            held = node.store.state = HeldCall(node.store.state)
        settler.truncator.pinned_for = 0
        await until(held.reached.is_set, what="the delete of all 60 to be planned")
        planned = settler.truncator.tasks.by_lane[own]

        world.store.lane(lane).roll_back(10)
        await world.put_many(50, project="still")  # fewer than before: no feed delivers them
        if noticed:
            node.store.elected()
        if noticed == "and verified":
            await node.verifier.verify(own)
            assert 1 == own.generation
        put = _above(world, lane, 10)
        held.go.set()
        await planned
        assert (50, put) == (len(put), _above(world, lane, 10))
        await until(lambda: world.waiting() == 1 + 50, what="all messages but the pinned ones to be deleted")


def _above(world, lane, sequence):
    """The messages of the lane above a sequence."""
    return [each for each in world.server.messages(names.stream("online", lane)) if each.sequence > sequence]
