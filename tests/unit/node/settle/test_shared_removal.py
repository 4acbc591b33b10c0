"""Removal from streams that several subscriptions read: only what all of them have settled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from structlog.testing import capture_logs

from evenlane.engine.base import names
from evenlane.engine.cluster.subscriptions.registry import RegistryView, Subscription
from evenlane.engine.core.records import settle_record
from evenlane.engine.node.settle.removal_bound import RemovalBound
from evenlane.engine.node.tuning import NodeTuning
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.node.subscriptions import AUDIT, VIEW, five_handled, start
from tests.support.node.world import LANES, World, is_durable
from tests.support.until import until

if TYPE_CHECKING:
    from evenlane.engine.base.names import LaneId

UNREADABLE = RegistryView(8, None)
NONE = RegistryView()
PURGES_ONLY = NodeTuning(pinned_for=1 << 62)


async def test_stream_is_purged_up_to_what_all_have_settled() -> None:
    """K10: messages that one subscription hasn't settled stay, however far the other one is; then they go, also once
    traffic has ended, and none needs to be deleted singly.
    """
    released, seen = asyncio.Event(), []

    async def hold(message: Any) -> None:
        seen.append(message.id)
        await released.wait()

    async with World() as world:
        node = await start(world, tuning=PURGES_ONLY)
        audit = await start(world, hold, AUDIT)
        ids = await world.put_many(20)
        await until(lambda: len(world.handled) == 20 and is_durable(node) and len(seen) == 8)
        await until(lambda: not node.settler.truncator.tasks.by_lane)
        assert world.waiting() == 20
        released.set()
        await world.all_gone()
        assert sorted(ids) == sorted(seen) == sorted(world.ids)
        assert is_durable(audit)


async def test_named_subscription_that_is_ahead_removes_nothing() -> None:
    """K10: the owners of the unnamed subscription remove, and no others."""
    async with World() as world:
        audit = await start(world, cluster=AUDIT)
        await world.put_many(5)
        await until(lambda: len(world.handled) == 5 and is_durable(audit))
        await until(lambda: not audit.settler.truncator.lanes, 10, "audit to have nothing left to do")
        assert world.waiting() == 5
        await start(world)
        await world.all_gone()
        assert len(world.handled) == 10


async def test_registry_that_cant_be_read_holds_everything() -> None:
    """L, K10: nobody knows what others still need."""
    async with World() as world:
        node = await start(world, view=UNREADABLE)
        await world.put_many(5)
        await until(lambda: len(world.handled) == 5 and is_durable(node))
        lane = node.partitions[world.partition_of(0)].lane
        looked = lane.removal.last_purge
        await until(lambda: lane.removal.last_purge > looked, 5, "it to ask again whether something may go")
        await until(lambda: not node.settler.truncator.tasks.by_lane)
        assert world.waiting() == 5
        node.registry.adopt(NONE)
        await node.registry.complete()
        await world.all_gone()


async def test_repair_of_the_registry_forgets_nobody() -> None:
    """L, K10: the registry can't be read, and is deleted then. What a subscription that was in it needs stays."""
    async with five_handled() as (world, node, _audit):
        for view in (UNREADABLE, NONE):
            node.registry.adopt(view)
            await node.registry.complete()
        assert node.registry.has_unlisted
        lane = node.partitions[world.partition_of(0)].lane
        looked = lane.removal.last_purge
        await until(lambda: lane.removal.last_purge > looked, 15, "it to ask again whether something may go")
        await until(lambda: not node.settler.truncator.tasks.by_lane)
        assert world.waiting() == 5


async def test_what_was_held_goes_with_the_subscription() -> None:
    """K10: deletion frees what only the deleted subscription held."""
    async with World() as world:
        node = await start(world)
        await world.put_many(20)
        await until(lambda: len(world.handled) == 20 and is_durable(node))
        assert world.waiting() == 20
        node.registry.adopt(NONE)
        await node.registry.complete()
        await world.all_gone()


async def test_subscription_that_only_etcd_has_lost_still_counts() -> None:
    """F2, K10: after a restoration from a backup the registry may lack it. Its settle logs say that it isn't deleted;
    the node that lives through it knows that, and so does one that starts later.
    """
    async with five_handled() as (world, lives, audit):
        with capture_logs() as logs:
            lives.registry.adopt(NONE)
            await lives.registry.complete()
        assert [(each["event"], each["cluster"]) for each in logs if each["log_level"] == "error"] == [
            ("a subscription is missing in etcd: nothing that it needs is removed", AUDIT)
        ]
        await world.crash(lives)
        later = await start(world, view=NONE)
        await world.put_many(5)
        await until(lambda: len(world.handled) == 10 and is_durable(later))
        assert world.waiting() == 10
        await audit.delete_own_streams()
        await later.registry.complete()
        await world.all_gone()


class ListingStore(MemoryStore):
    """Lists clusters only after the test has let it."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.listing, self.let = asyncio.Event(), asyncio.Event()

    async def find_clusters(self, *, again: bool = False) -> frozenset[str]:
        found = await super().find_clusters(again=again)
        if again:
            self.listing.set()
            await self.let.wait()
        return found


async def test_subscription_that_is_lost_during_a_look_still_counts() -> None:
    """F2, K10: etcd loses one after the other."""
    async with World() as world:
        store, other = ListingStore(world.server, "online"), "online_billing"
        await store.open()
        for cluster in (AUDIT, other):
            own = world.new_store(cluster)
            await own.open()
            await own.create_own_streams()
            await own.close()
        bound = RemovalBound(store, "online", 2)
        bound.adopt(RegistryView(7, {name: Subscription(state="active") for name in ("audit", "billing")}))
        bound.adopt(RegistryView(8, {"billing": Subscription(state="active")}))
        looking = asyncio.create_task(bound.check_unlisted())
        await store.listing.wait()
        bound.adopt(NONE)
        store.let.set()
        await looking
        assert {AUDIT, other} == {*(bound.others or ())}
        await store.close()


async def test_log_of_another_stream_settles_nothing() -> None:
    """L, K10: not if the stream was created again, and not if it was rolled back since the record was written; not even
    after a record about this stream.
    """
    async with five_handled() as (world, node, audit):
        lane = names.LaneId("lanes", world.partition_of(0))
        first, *_, last = world.server.messages(names.stream("online", lane))
        fields = (settle_record.SHARED_VERSION, 0, 0, (await world.store.state(lane)).created)
        right = settle_record.SettleRecord(*fields, last.sequence, last.at, last.sequence, b"")
        position = 0
        owned = node.partitions[lane.partition].lane
        for wrong in (
            replace(right, high=first.sequence, high_at=first.at, watermark=0),
            replace(right, created="another"),
            replace(right, high_at=last.at + 1),
            replace(right, high=last.sequence + 1),
        ):
            position = await audit.append_log(lane, settle_record.encode(wrong), position)
            looked = owned.removal.last_purge
            await until(lambda looked=looked: owned.removal.last_purge > looked, 15, "it to ask again")  # type: ignore[misc]
            await until(lambda: not node.settler.truncator.tasks.by_lane)
            assert world.waiting() == 5
        await audit.append_log(lane, settle_record.encode(right), position)
        await world.all_gone()


async def test_log_of_before_a_reset_settles_nothing() -> None:
    """L, K10: the subscription gets these messages again. A record that follows the reset counts."""
    async with five_handled() as (world, node, audit):
        lane = names.LaneId("lanes", world.partition_of(0))
        *_, last = world.server.messages(names.stream("online", lane))
        fields = (settle_record.SHARED_VERSION, 0, 0, (await world.store.state(lane)).created)
        record = settle_record.SettleRecord(*fields, last.sequence, last.at, last.sequence, b"", reset=8)
        node.registry.adopt(RegistryView(8, {"audit": Subscription(state="active", reset=9)}))
        position = await audit.append_log(lane, settle_record.encode(record), 0)
        owned = node.partitions[lane.partition].lane
        looked = owned.removal.last_purge
        await until(lambda: owned.removal.last_purge > looked, 15, "it to ask again")
        await until(lambda: not node.settler.truncator.tasks.by_lane)
        assert world.waiting() == 5
        await audit.append_log(lane, settle_record.encode(replace(record, reset=9)), position)
        await world.all_gone()


async def test_last_message_may_be_deleted_before_the_log_begins() -> None:
    """K10: a lane whose last message was deleted because others pinned the watermark is emptied nevertheless."""
    async with five_handled() as (world, _node, audit):
        lane = names.LaneId("lanes", world.partition_of(0))
        state = await audit.state(lane)
        await audit.delete(lane, state.last)
        fields = (settle_record.SHARED_VERSION, 0, 0, state.created, state.last, state.at, state.last, b"")
        await audit.append_log(lane, settle_record.encode(settle_record.SettleRecord(*fields)), 0)
        await world.all_gone()


class SlowStore(MemoryStore):
    """Purges take until they are `let` go on."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.purging, self.let = asyncio.Event(), asyncio.Event()

    async def purge(self, lane: LaneId, below: int, may: Any = lambda: True) -> None:
        self.purging.set()
        await self.let.wait()
        await super().purge(lane, below, may)


class SlowWorld(World):
    def new_store(self, cluster: str = "online") -> MemoryStore:
        return SlowStore(self.server, cluster)


async def test_adoption_waits_for_removals_under_way() -> None:
    """L, K10: a creation is acknowledged after it, and promises what is stored from then on."""
    async with SlowWorld() as world:
        node = await start(world, view=NONE)
        assert isinstance(node.store, SlowStore)
        await world.put_many(20)
        await node.store.purging.wait()
        node.registry.adopt(VIEW)
        completing = asyncio.create_task(node.registry.complete())
        await until(lambda: all_say_shared(world), 10, "each settle log to say that there are other subscriptions")
        assert not completing.done()
        node.store.let.set()
        await completing


async def test_adoption_is_written_into_each_settle_log() -> None:
    """L, K10: an owner of an older release gives up when it reads that. Then nothing more goes."""
    async with World() as world:
        node = await start(world, view=NONE)
        node.registry.adopt(VIEW)
        await node.registry.complete()
        assert await all_say_shared(world)
        await world.put_many(20)
        await until(lambda: len(world.handled) == 20 and is_durable(node))
        assert world.waiting() == 20


async def all_say_shared(world: World) -> bool:
    records = [await world.store.read_last_record(lane, "online") for lane in LANES]
    return all(raw is not None and settle_record.decode(raw).version == 2 for raw in records)
