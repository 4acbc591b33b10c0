"""Takes over the partitions that a node owns, hands them off, and requeues messages that previous owners held."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.aio.task_errors import log_failure
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.partitions.backlog_schedule import OPEN_FIRST_S
from evenlane.engine.node.partitions.closing_partitions import HANDLER_WAIT_S, ClosingPartitions
from evenlane.engine.node.partitions.partition_opener import PartitionOpener
from evenlane.engine.node.partitions.partition_table import PartitionTable
from evenlane.engine.node.settle.settle_log_reader import read_settle_log

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Iterable

    from evenlane.engine.base.names import Kind
    from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
    from evenlane.engine.core.lane.handoff_state import HandoffState
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.node.handlers.worker import Workers
    from evenlane.engine.node.partitions.partition import Partition, PartitionContext
    from evenlane.engine.node.queues.owned_lanes import OwnedLanes
    from evenlane.engine.node.queues.registry import QueueRegistry
    from evenlane.engine.node.settle.outcomes import FailureHandler
    from evenlane.engine.node.signals.counters import Counters
    from evenlane.engine.node.signals.dirty_lanes import DirtyLanes
    from evenlane.engine.node.signals.store_clock import StoreClock
    from evenlane.ring.membership.records import HeldRecord, PastOwner

_log = structlog.get_logger(__name__)

_LOOKED_AT_ONCE = 2
_PAUSE_S = 0.2
_HOURS_EVERY_S = 60.0


class OwnedPartitions:
    """The partitions that a node owns. `unreadable`: see `PartitionOpener`.

    Invariants:
    - `partitions` has those that are open or being opened.
    - `mine` has these numbers and those about to be added; it is shared with the quota shares.
    - A partition is in `_closing` from `stop_partition` until its handoff is complete, and in `partitions` no more.
    """

    def __init__(
        self,
        context: PartitionContext,
        lanes: OwnedLanes,
        mine: set[int],
        queues: QueueRegistry,
        dirty: DirtyLanes,
        failures: FailureHandler,
        workers: Workers,
        counters: Counters,
        clock: StoreClock,
        unreadable: UnreadableRecords,
    ) -> None:
        self._store, self._settler, self._due = context.store, context.settler, context.due
        self._kinds = context.kinds
        self._eligibility, self._queues, self._dirty, self._clock = context.eligibility, queues, dirty, clock
        self.partitions = PartitionTable(lanes)
        self.mine = mine
        self._opener = PartitionOpener(context, self.partitions, queues, counters, unreadable)
        self._closing = ClosingPartitions(workers, failures, context.settler)
        self._inspections = asyncio.Semaphore(_LOOKED_AT_ONCE)
        self._apart: set[asyncio.Task[None]] = set()  # background tasks

    def lanes(self) -> list[FedLane]:
        """The lanes of all partitions whose log has a record of this node's epoch, that is, whose takeover
        is complete.
        """
        return [lane for partition in self.partitions.values() for lane in partition.lanes if lane.log.has_begun]

    def list_all_lanes(self) -> list[FedLane]:
        """The lanes of all partitions, also of those that are being opened or handed off."""
        return [lane for each in (*self.partitions.values(), *self._closing) for lane in each.lanes]

    def feed_again(self, lane: FedLane) -> None:
        """Feed a lane from the start, after its stream was replaced. A lane that is being handed off still settles, so
        it counts, too.
        """
        number = lane.id.partition
        for partition in (self._closing.get(number, lane.epoch), self.partitions.get(number)):
            if partition is not None and lane in partition.lanes:
                partition.feed_again(lane)

    async def turn_hours(self) -> None:
        """Every minute, measure the store's clock and feed the hours that have come near."""
        while True:
            await asyncio.sleep(_HOURS_EVERY_S)
            self._clock.measure()
            self._eligibility.discard_stale()
            for partition in [each for each in self.partitions.values() if each.opened]:
                try:
                    await partition.feed_later()
                except (Lost, Refused) as error:
                    _log.debug("hours not turned", partition=partition.number, error=str(error))

    # ---- opening

    def expect(self, *, more: bool) -> None:
        """Say whether the plan gives this node partitions that aren't open yet."""
        self._store.expect_feeds(more=more)

    async def open(
        self,
        number: int,
        epoch: int,
        held: Iterable[HeldRecord] = (),
        known: Collection[PastOwner] | None = None,
        lease: int = 0,
    ) -> None:
        """Own a partition under this epoch. When the call returns, its messages are being delivered, except those that
        previous owners still hold.

        Waits while the store is unreachable or refuses. `lease` is the lease under which the epoch was
        claimed. Raises Fenced; UnknownEpoch if the settle log was written by an owner that isn't in `known` (None: all
        are known) and didn't end cleanly.
        """
        held = list(held)
        for record in held:
            self._queues.shares.defer(number, record.lent)
        self.mine.add(number)
        self._queues.shares.on_partition_acquired()
        partition = await self._opener.open(number, epoch, held, known, lease)
        self._tend(partition)
        self._queues.shares.on_more_partitions()
        await self._complete(partition)
        self._due.on_delayed(None)
        self._spawn(self._look_again(partition), f"look again {number}")

    async def read_logs(self, number: int) -> None:
        """Read the settle logs of a partition, also another node's. Raises Lost, Refused, UnknownVersion."""
        for kind in self._kinds:
            await read_settle_log(self._store, LaneId(kind, number))

    async def _look_again(self, partition: Partition) -> None:
        """Verify all streams once the partitions that were opened together have had time to serve."""
        await asyncio.sleep(OPEN_FIRST_S)
        async with self._inspections:
            while self.partitions.has(partition):
                try:
                    await partition.look_again()
                    return
                except (Lost, Refused) as error:
                    _log.debug("not looked at again yet", partition=partition.number, error=str(error))
                await asyncio.sleep(_PAUSE_S)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._apart.add(task)
        task.add_done_callback(self._apart.discard)
        task.add_done_callback(log_failure)

    def _tend(self, partition: Partition) -> None:
        """Settle and remove what the previous owner left to be settled or removed."""
        for lane in partition.lanes:
            lane.removal.last_purge = now_ns()  # (it isn't urgent)
            if lane.log.unsynced_count:
                self._dirty.mark(lane)
            if lane.removal.is_behind:
                self._settler.tend(lane)

    async def _complete(self, partition: Partition) -> None:
        while self.partitions.has(partition):
            try:
                await partition.complete()
                return
            except (Lost, Refused, ConfigError) as error:
                _log.warning("delayed messages don't come in yet", **lane_fields(partition.lane), error=str(error))
            await asyncio.sleep(_PAUSE_S)

    # ---- handoff

    def list_owed(self, number: int) -> dict[str, float]:
        """See `QuotaShares.list_owed`."""
        return self._queues.shares.list_owed(number)

    def stop_partition(self, number: int) -> None:
        """Begin the handoff: hand out no more messages of the partition. Running handlers may end."""
        self.mine.discard(number)
        self._queues.discard(number)
        partition = self.partitions.remove(number)
        if partition is None:
            return
        self._closing.begin(partition)
        self._eligibility.discard_stale()

    async def hand_off(self, number: int, epoch: int, wait_s: float = HANDLER_WAIT_S) -> dict[Kind, HandoffState]:
        """After `stop_partition`: see `ClosingPartitions.hand_off`."""
        return await self._closing.hand_off(number, epoch, wait_s)

    async def drop_partition(self, number: int, epoch: int) -> None:
        """After `stop_partition`: the partition belongs to another node by now, so nothing more of it is settled or
        reported.
        """
        partition = self._closing.remove(number, epoch)
        if partition is not None:
            await partition.abandon()

    async def close(self) -> None:
        """Close all feeds."""
        for task in self._apart:
            task.cancel()
        each = [*self.partitions.values(), *self._closing]
        await asyncio.gather(*(partition.close() for partition in each), return_exceptions=True)

    def end(self) -> None:
        """Prepare the end of the process, once no message is handed out any more: the settler writes the clean ends."""
        for partition in [*self.partitions.values(), *self._closing]:
            for lane in partition.lanes:
                if lane.handoff is None:
                    lane.stop([])
                lane.drop_running()
                if lane.log.has_begun:  # otherwise its takeover was interrupted: there is nothing to write
                    self._dirty.mark(lane)

    # ---- messages held by previous owners

    def on_held_change(self, number: int, record: HeldRecord) -> None:
        """Some held messages have ended at their holder."""
        if (partition := self.partitions.get(number)) is not None:
            partition.previous_owners.on_change(record)
            for lane in partition.lanes:
                self._dirty.mark(lane)

    def on_held_release(self, number: int, record: HeldRecord) -> None:
        """The holder lives, and won't handle these messages after all: hand them out here."""
        if (partition := self.partitions.get(number)) is not None:
            partition.previous_owners.release(record)
            for lane in partition.lanes:
                self._dirty.mark(lane)

    def on_held_gone(self, number: int, record: HeldRecord) -> None:
        """The holder is gone without ending these messages: hand them out here."""
        if (partition := self.partitions.get(number)) is not None:
            self._spawn(self._release_held(partition, record), f"release {number}")

    async def _release_held(self, partition: Partition, record: HeldRecord) -> None:
        while self.partitions.has(partition):
            try:
                await partition.previous_owners.on_gone(record)
                for lane in partition.lanes:
                    self._dirty.mark(lane)
                return
            except (Lost, Refused) as error:
                _log.debug("not released yet", partition=partition.number, error=str(error))
            await asyncio.sleep(_PAUSE_S)

    def is_held_durable(self, number: int, record: HeldRecord) -> bool:
        """Whether all held messages that have ended are durably settled, and all lent parts have expired. Until then
        the next owner needs the record, in case this node dies.
        """
        partition = self.partitions.get(number)
        return (
            partition is not None
            and partition.previous_owners.is_durable(record)
            and not self._queues.shares.must_wait_for(number)
        )
