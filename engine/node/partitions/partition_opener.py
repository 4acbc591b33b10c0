"""Opens partitions: takes each over, and starts over whenever the store goes away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.aio.pacing import Pacing
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.core.records.settle_record import UnknownVersion
from evenlane.engine.errors import ConfigError, UnknownEpoch
from evenlane.engine.node.partitions.backlog_schedule import BacklogSchedule
from evenlane.engine.node.partitions.partition import Partition
from evenlane.ring.membership.records import SETTLE_LOG, Unreadable

if TYPE_CHECKING:
    from collections.abc import Collection

    from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
    from evenlane.engine.node.partitions.partition import PartitionContext
    from evenlane.engine.node.partitions.partition_table import PartitionTable
    from evenlane.engine.node.queues.registry import QueueRegistry
    from evenlane.engine.node.signals.counters import Counters
    from evenlane.ring.membership.records import HeldRecord, PastOwner

_log = structlog.get_logger(__name__)

_OPENED_AT_ONCE = 3  # so that each serves soon; a slow one holds up the others for at most _OPENING_S
_OPENING_S = 0.05
_APART_S, _SPREAD_S = 0.02, 0.5  # at most: from one opening to the next; from the first to the last
_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0


class PartitionOpener:
    """Opens the partitions of one node, a few at a time. `unreadable` is informed of settle logs that can't be read.

    Invariant: `_begun` has, by partition, the last epoch under which a takeover failed half-way. The settle logs may
    have records of that epoch, although it has delivered nothing.
    """

    def __init__(
        self,
        context: PartitionContext,
        table: PartitionTable,
        queues: QueueRegistry,
        counters: Counters,
        unreadable: UnreadableRecords,
    ) -> None:
        self._context, self._table, self._queues = context, table, queues
        self._counters, self._unreadable = counters, unreadable
        self._turns = Pacing(_OPENED_AT_ONCE, _OPENING_S)
        self._backlogs = BacklogSchedule()
        self._begun: dict[int, int] = {}

    async def open(
        self, number: int, epoch: int, held: list[HeldRecord], known: Collection[PastOwner] | None, lease: int
    ) -> Partition:
        """Take a partition over, and let its messages start. Its backlog follows once others are open, too. Arguments
        and errors: see `OwnedPartitions.open`.
        """
        self._backlogs.begin()
        try:
            async with self._turns.turn(min(_APART_S, _SPREAD_S / self._backlogs.unopened)):
                partition = await self._take_over(number, epoch, held, known, lease)
            self._table.serve(partition)
            self._backlogs.add(partition)
            self._queues.report_ready(number, self._context.ready.on_queue_ready)
            return partition
        finally:
            self._unreadable.end(number)
            self._backlogs.end()

    async def _take_over(
        self, number: int, epoch: int, held: list[HeldRecord], known: Collection[PastOwner] | None, lease: int
    ) -> Partition:
        """Try until it succeeds."""
        pause, last_error = _PAUSE_S, ""
        while True:
            partition = Partition(self._context, number, epoch, lease)
            self._table.put(partition)
            repeated = known is None or self._begun.get(number) == epoch
            try:
                await partition.open(held, known, repeated=repeated)
                self._counters.ended_blocked_s += partition.ended_blocked_s
                return partition
            except UnknownEpoch:
                await self._give_up(partition)
                raise
            except (Lost, Refused, ConfigError) as error:
                again, last_error = str(error) == last_error, str(error)
                if again:
                    _log.debug("the takeover starts again", partition=number, epoch=epoch, error=last_error)
                else:
                    _log.warning("the take-over begins anew", partition=number, epoch=epoch, error=last_error)
                if isinstance(error, UnknownVersion):
                    self._unreadable.note(number, Unreadable(SETTLE_LOG, error.record.version), last_error)
                await self._give_up(partition)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _give_up(self, partition: Partition) -> None:
        """Undo a failed takeover. If it may have written to a log, the log has this epoch, which belongs to no other
        owner.
        """
        if any(lane.log.may_have_begun for lane in partition.lanes):
            self._begun[partition.number] = partition.lane.epoch
        if self._table.has(partition):
            self._table.remove(partition.number)
        await partition.abandon()
