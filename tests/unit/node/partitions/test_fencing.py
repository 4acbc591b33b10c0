"""Owners of earlier epochs: a newer owner fences an older one, and one that etcd lost is awaited (O)."""

import asyncio

import pytest
from msgspec.structs import replace

from evenlane.engine.core.records import settle_record
from evenlane.engine.errors import Fenced, UnknownEpoch
from evenlane.ring.membership.records import HeldLane, HeldRecord, PastOwner
from tests.support.node.world import World
from tests.support.store.feeding import logged
from tests.support.until import until


async def test_newer_owner_fences_the_previous_one():
    """O: the zombie's append is refused, and it reports that it settles nothing more."""
    reasons = []
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(10)
        old = await world.node(handle, on_stop=reasons.append)
        await until(lambda: len(old.workers.running) == 8)
        await world.node()
        await world.all_gone()
        gate.set()
        await until(lambda: reasons)
        assert "newer owner" in reasons[0]
        assert not await old.stop(0.2)


async def test_takeover_with_an_older_epoch_is_fenced():
    """O."""
    async with World() as world:
        await world.put()
        await world.node()
        await world.all_gone()
        late = await world.node()
        with pytest.raises(Fenced):
            await late.take_over([0], 1)


class TestUnknownEpoch:
    """O, F2, F3: the settle log has an epoch that etcd doesn't know, so etcd was rolled back."""

    @pytest.fixture
    async def world(self):
        async with World() as world:
            await world.put()
            await world.node()
            await world.all_gone()
            yield world

    @staticmethod
    def epoch(world):
        return next(iter(world.nodes[0].partitions.values())).lane.epoch

    async def test_takeover_waits_for_an_owner_whose_end_is_unknown(self, world):
        first, late = self.epoch(world), await world.idle_node()
        with pytest.raises(UnknownEpoch) as found:
            await late.owned.open(0, first + 9, (), known={PastOwner(first - 1, 0)})
        assert first == found.value.epoch
        assert {} == late.partitions
        await late.owned.open(0, first + 9, (), known={PastOwner(first, 0)})
        assert [0] == [*late.partitions]

    async def test_lease_distinguishes_owners_with_the_same_epoch(self, world):
        """O: after a rollback of etcd, two owners may have the same epoch. Older releases record no lease."""
        first, late = self.epoch(world), await world.idle_node()
        await late.owned.open(0, first + 9, (), known={PastOwner(first, 5)}, lease=8)
        third = await world.idle_node()
        with pytest.raises(UnknownEpoch) as found:
            await third.owned.open(0, first + 19, (), known={PastOwner(first + 9, 7)}, lease=9)
        assert (first + 9, 8) == (found.value.epoch, found.value.lease)
        with pytest.raises(UnknownEpoch):
            await third.owned.open(0, first + 19, [self.released(first + 9, 7)], known=set(), lease=9)
        await third.owned.open(0, first + 19, [self.released(first + 9, 8)], known=set(), lease=9)
        assert [0] == [*third.partitions]

    @staticmethod
    def released(epoch, lease):
        """The record of an owner whose logs didn't take its clean end in time."""
        lanes = {kind: HeldLane(created="") for kind in ("lanes", "later")}
        return HeldRecord(id="previous", epoch=epoch, lease=lease, lanes=lanes)

    @pytest.mark.parametrize("writer", ["another owner", "an older release"])
    async def test_lease_distinguishes_records_with_the_same_number(self, world, writer):
        """O: after an append without an answer, a record of the same epoch and number may be another owner's. A record
        without a lease counts as the node's own.
        """
        reasons, number, epoch = [], world.partition_of(0), self.epoch(world) + 9
        await world.crash(world.nodes[0])
        node = await world.idle_node(on_fenced=reasons.append)
        await node.owned.open(number, epoch, lease=5)
        lane = node.partitions[number].lane
        records, position = await logged(world.store, lane.id)
        last = settle_record.decode(records[-1])
        assert (lane.epoch, 5) == (last.epoch, last.lease)
        theirs = replace(last, number=last.number + 1, lease=8 if writer == "another owner" else 0)
        await world.store.append_log(lane.id, settle_record.encode(theirs), position, checkpoint=True)
        await world.put()
        await until(lambda: lane.fenced or lane.log.durable_number == theirs.number)
        assert (writer == "another owner") == lane.fenced == bool(reasons)
        assert not reasons or "a newer owner has taken over" in reasons[0]

    async def test_takeover_does_not_wait_for_an_owner_with_a_clean_end(self, world):
        first, late = self.epoch(world), await world.idle_node()
        await world.nodes[0].stop(1.0, process_ends=True)
        await late.owned.open(0, first + 9, (), known={PastOwner(first - 1, 0)})
        assert [0] == [*late.partitions]

    @pytest.mark.parametrize("lower", [0, 1])
    async def test_takeover_needs_a_higher_epoch_after_a_clean_end(self, world, lower):
        """O: an equal epoch is another owner's."""
        first, late = self.epoch(world), await world.idle_node()
        await world.nodes[0].stop(1.0, process_ends=True)
        with pytest.raises(UnknownEpoch) as found:
            await late.owned.open(0, first - lower, (), known={PastOwner(first - 5, 0)})
        assert first == found.value.epoch
