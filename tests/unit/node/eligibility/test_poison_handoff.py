"""Who dies of a message that its next owner holds back is counted, whatever becomes of that owner (X11, Z1)."""

import asyncio

import pytest

from evenlane.engine.cluster.ownership.handoff import handoff_record, not_ended
from evenlane.engine.core.lane.attempts import held_under
from evenlane.engine.core.message.message import Pause
from evenlane.engine.errors import UnknownEpoch
from evenlane.ring.membership.records import PastOwner
from tests.support.node.two import P, Two, lane_of
from tests.support.node.world import SECOND
from tests.support.until import until


class Poisoned(Two):
    """One message, that nobody's handler ends; `handoff_record` is what its former owner said first."""

    async def begin(self, kind, recorded):
        self.recorded = recorded
        if recorded:
            await self.crash(await self.opened("old", 0))
        self.lane = lane_of(kind)
        self.own = await self.put(due=self.store.now() + SECOND // 50 if kind == "later" else None)
        self.slow = {(name, self.own) for name in ("a", "b")}
        self.a = await self.bare("a")
        await self.a.owned.open(P, 1)
        await until(lambda: ("a", self.own) in self.begun)
        self.handoff_record = await self.released(self.a, 1)

    async def opened(self, name, epoch, *held, **options):
        node = await self.bare(name, **options)
        await node.owned.open(P, epoch, held)
        return node

    async def in_log(self):
        """Under which epochs it is held, by the log of its lane."""
        marks = (await self.settled(self.lane)).marks
        return {sequence: held_under(mark) for sequence, mark in marks.items() if held_under(mark)}

    async def ends(self):
        """Attempt and suspicion of each handling that has ended."""
        await until(lambda: self.own in self.ids)
        await until(lambda: self.waiting() == 0)
        return [(message.attempt, message.suspect) for message in self.handled if message.id == self.own]


@pytest.fixture(params=["lanes", "later"])
def kind(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["fresh", "recorded"])
async def world(kind, request):
    async with Poisoned() as made:
        await made.begin(kind, request.param)
        yield made


async def test_when_the_next_owner_dies_first(world):
    """X11: the owner after that suspects it; and counts it, once, if a record named it."""
    b = await world.opened("b", 2, world.handoff_record)
    assert {1: 1} == await world.in_log()
    await world.crash(b)
    await world.crash(world.a)
    await world.opened("c", 3)
    assert [(1 + world.recorded, True)] == await world.ends()


async def test_when_the_next_owner_has_handed_it_over_before(world):
    """X11: to one that has held it back as well, and has died."""
    b = await world.opened("b", 2, world.handoff_record)
    b.owned.stop_partition(P)
    assert {} == await b.owned.hand_off(P, 2)
    c = await world.opened("c", 3, world.handoff_record)
    assert {1: 1} == await world.in_log()
    await world.crash(c)
    await world.crash(world.a)
    await world.opened("d", 4)
    assert [(1 + world.recorded, True)] == await world.ends()


async def test_when_the_next_owner_dies_of_it_at_once(world):
    """X11: two deaths, though the log has heard of none. A record names it at the second, as it is suspect."""
    b = await world.opened("b", 2, world.handoff_record, settle_interval=60)
    await world.crash(world.a)
    b.owned.held_gone(P, world.handoff_record)
    await until(lambda: ("b", world.own) in world.begun)
    assert {1: 1} == await world.in_log()
    await world.crash(b)
    await world.opened("c", 3)
    assert [(2 + world.recorded, True)] == await world.ends()


async def test_the_log_hears_of_it_when_nothing_else_happens(world):
    """X11: of the death, and that nothing is held any more; nobody counts that one again."""
    b = await world.opened("b", 2, world.handoff_record)
    await world.crash(world.a)
    b.owned.held_gone(P, world.handoff_record)
    await until(lambda: ("b", world.own) in world.begun)
    await until(lambda: not b.partitions[P].lane.log.unsynced_count and not b.partitions[P].later.log.unsynced_count)
    assert {} == await world.in_log()
    await world.crash(b)
    await world.opened("c", 3)
    assert [(2 + world.recorded, True)] == await world.ends()


async def test_a_holder_that_etcd_has_forgotten_is_outlived_first(world):
    """O, F3: the key that says what it holds may be forgotten, too, and its handler may run."""
    await world.crash(await world.opened("b", 2, world.handoff_record))
    c = await world.bare("c")
    with pytest.raises(UnknownEpoch, match="are held by an owner of epoch 1, that etcd has forgotten") as found:
        await c.owned.open(P, 3, (), {PastOwner(2, 0)})
    assert (1, 0, {}) == (found.value.epoch, found.value.lease, c.partitions)
    assert {1: 1} == await world.in_log()
    await world.crash(world.a)
    await c.owned.open(P, 3, (), {PastOwner(1, 0), PastOwner(2, 0)})
    assert [(1 + world.recorded, True)] == await world.ends()


async def test_one_whose_key_is_there_is_not_waited_for(world):
    await world.crash(await world.opened("b", 2, world.handoff_record))
    c = await world.bare("c")
    await c.owned.open(P, 3, [world.handoff_record], {PastOwner(2, 0)})
    assert ([P], []) == ([*c.partitions], world.handled)


async def test_what_is_let_go_in_peace_costs_nothing(world):
    """X11: its holder says so while it is owned by nobody, and then dies: of something else."""
    world.error = Pause(0.01)
    b = await world.opened("b", 2, world.handoff_record)
    await world.crash(b)
    world.gate.set()
    await until(lambda: not world.record().running)
    last = handoff_record("a", 1, world.lanes)
    await world.crash(world.a)
    world.slow.clear()
    await world.opened("c", 3, last)
    assert {} == await world.in_log()
    assert [(1, False)] == await world.ends()


async def test_a_word_is_not_deleted_before_the_log_knows_that_nothing_is_held(world):
    """X11: else the next owner would take its holder for dead."""
    world.error = Pause(0.01)
    b = await world.opened("b", 2, world.handoff_record)
    world.server.delay_acks()
    world.gate.set()
    await until(lambda: not world.record().running)
    last = world.record()
    world.slow.clear()
    b.owned.held_changed(P, last)
    b.owned.held_released(P, not_ended(world.handoff_record, last))
    for _ in range(20):
        await asyncio.sleep(0)
        assert not b.owned.held_durable(P, last)
    world.server.delay_acks(0)
    await until(lambda: b.owned.held_durable(P, last))
    assert {} == await world.in_log()
    assert [(1, False)] == await world.ends()
