"""The death of a previous owner counts, whatever happens to the next owner, which withholds its messages (X11, Z1)."""

import asyncio

import pytest

from evenlane.engine.cluster.ownership.handoff import find_released, handoff_record
from evenlane.engine.core.lane.attempts import holder_of
from evenlane.engine.core.message.handler_exceptions import Pause
from evenlane.engine.errors import UnknownEpoch
from evenlane.ring.membership.records import PastOwner
from tests.support.node.two import P, Two, lane_of
from tests.support.node.world import SECOND
from tests.support.until import until


class Poisoned(Two):
    """One message whose handlers don't end. Node a has handed off its partition, and `handoff_record` is its first
    record.
    """

    async def begin(self, kind, recorded):
        self.recorded = recorded
        if recorded:
            await self.crash(await self.opened("old", 0))
        self.lane = lane_of(kind)
        self.message_id = await self.put(due=self.store.now() + SECOND // 50 if kind == "later" else None)
        self.slow = {(name, self.message_id) for name in ("a", "b")}
        self.a = await self.bare("a")
        await self.a.owned.open(P, 1)
        await until(lambda: ("a", self.message_id) in self.begun)
        self.handoff_record = await self.released(self.a, 1)

    async def opened(self, name, epoch, *held, **options):
        node = await self.bare(name, **options)
        await node.owned.open(P, epoch, held)
        return node

    async def held_in_log(self):
        """The epoch under which each message is held, by sequence, as the settle log has it."""
        marks = (await self.settled(self.lane)).marks
        return {sequence: holder_of(mark) for sequence, mark in marks.items() if holder_of(mark)}

    async def ends(self):
        """The attempt of each finished run, and whether it was a suspect."""
        await until(lambda: self.message_id in self.ids)
        await self.all_gone()
        return [(message.attempt, message.is_suspect) for message in self.handled if message.id == self.message_id]


@pytest.fixture(params=["lanes", "later"])
def kind(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["fresh", "recorded"])
async def world(kind, request):
    async with Poisoned() as made:
        await made.begin(kind, request.param)
        yield made


async def test_third_owner_suspects_the_message_after_two_deaths(world):
    """X11: the next owner dies before the previous one. The death counts, once, if a record names the message."""
    b = await world.opened("b", 2, world.handoff_record)
    assert {1: 1} == await world.held_in_log()
    await world.crash(b)
    await world.crash(world.a)
    await world.opened("c", 3)
    assert [(1 + world.recorded, True)] == await world.ends()


async def test_held_message_is_suspect_after_a_second_handoff(world):
    """X11: the third owner withholds it, too, and dies."""
    b = await world.opened("b", 2, world.handoff_record)
    b.owned.stop_partition(P)
    assert {} == await b.owned.hand_off(P, 2)
    c = await world.opened("c", 3, world.handoff_record)
    assert {1: 1} == await world.held_in_log()
    await world.crash(c)
    await world.crash(world.a)
    await world.opened("d", 4)
    assert [(1 + world.recorded, True)] == await world.ends()


async def test_next_owner_that_dies_of_the_message_counts_both_deaths(world):
    """X11: though neither death is in the log yet. A record names the message at the second one, as it is a suspect."""
    b = await world.opened("b", 2, world.handoff_record, settle_interval=60)
    await world.crash(world.a)
    b.owned.on_held_gone(P, world.handoff_record)
    await until(lambda: ("b", world.message_id) in world.begun)
    assert {1: 1} == await world.held_in_log()
    await world.crash(b)
    await world.opened("c", 3)
    assert [(2 + world.recorded, True)] == await world.ends()


async def test_log_records_the_death_of_a_holder(world):
    """X11: and that nothing is held any more, though nothing else is settled. The death isn't counted again."""
    b = await world.opened("b", 2, world.handoff_record)
    await world.crash(world.a)
    b.owned.on_held_gone(P, world.handoff_record)
    await until(lambda: ("b", world.message_id) in world.begun)
    await until(lambda: not any(lane.log.unsynced_count for lane in b.partitions[P].lanes))
    assert {} == await world.held_in_log()
    await world.crash(b)
    await world.opened("c", 3)
    assert [(2 + world.recorded, True)] == await world.ends()


async def test_takeover_refuses_a_holder_that_etcd_lost(world):
    """O, F3: the key with its held messages may be lost, too, and their handlers may run."""
    await world.crash(await world.opened("b", 2, world.handoff_record))
    c = await world.bare("c")
    with pytest.raises(UnknownEpoch, match="are held by an owner of epoch 1, which etcd no longer knows") as found:
        await c.owned.open(P, 3, (), {PastOwner(2, 0)})
    assert (1, 0, {}) == (found.value.epoch, found.value.lease, c.partitions)
    assert {1: 1} == await world.held_in_log()
    await world.crash(world.a)
    await c.owned.open(P, 3, (), {PastOwner(1, 0), PastOwner(2, 0)})
    assert [(1 + world.recorded, True)] == await world.ends()


async def test_takeover_accepts_a_holder_whose_key_exists(world):
    await world.crash(await world.opened("b", 2, world.handoff_record))
    c = await world.bare("c")
    await c.owned.open(P, 3, [world.handoff_record], {PastOwner(2, 0)})
    assert ([P], []) == ([*c.partitions], world.handled)


async def test_released_message_costs_no_attempt(world):
    """X11: its holder releases it while the partition has no owner, and dies afterwards."""
    world.error = Pause(0.01)
    b = await world.opened("b", 2, world.handoff_record)
    await world.crash(b)
    world.gate.set()
    await until(lambda: not world.record().is_running)
    last = handoff_record("a", 1, world.lanes)
    await world.crash(world.a)
    world.slow.clear()
    await world.opened("c", 3, last)
    assert {} == await world.held_in_log()
    assert [(1, False)] == await world.ends()


async def test_handoff_record_is_kept_until_the_log_records_the_release(world):
    """X11: otherwise the next owner would take the holder for dead."""
    world.error = Pause(0.01)
    b = await world.opened("b", 2, world.handoff_record)
    world.server.delay_acks()
    world.gate.set()
    await until(lambda: not world.record().is_running)
    last = world.record()
    world.slow.clear()
    b.owned.on_held_change(P, last)
    b.owned.on_held_release(P, find_released(world.handoff_record, last))
    for _ in range(20):
        await asyncio.sleep(0)
        assert not b.owned.is_held_durable(P, last)
    world.server.delay_acks(0)
    await until(lambda: b.owned.is_held_durable(P, last))
    assert {} == await world.held_in_log()
    assert [(1, False)] == await world.ends()
