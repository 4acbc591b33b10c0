"""Carries out the actions of `evenlane.ring.membership.member`, on etcd and on the node."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.aio.pacing import Pacing
from evenlane.engine.base.clock import now_ns
from evenlane.engine.cluster.ownership.claimed_partition_opener import NEWER_PAUSE_S, ClaimedPartitionOpener
from evenlane.engine.cluster.ownership.handoff import HandoffId
from evenlane.engine.cluster.ownership.handoff_publisher import HandoffPublisher
from evenlane.engine.cluster.ownership.handoff_receiver import HandoffReceiver
from evenlane.engine.cluster.ownership.move_log import MoveLog
from evenlane.engine.cluster.ownership.owner_keys import OwnerKeys, WentBack
from evenlane.engine.cluster.ownership.unreadable_recheck import UnreadableRecheck
from evenlane.engine.errors import Fenced, UnknownEpoch
from evenlane.ring.coordination.ports import CoordinationError, LeaseGone
from evenlane.ring.membership.actions import Acquire, Clear, Close, ConfirmGeneration, Drop, Mark, Open, Release
from evenlane.ring.membership.records import NewerFormat

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from evenlane.engine.base.names import Kind
    from evenlane.engine.cluster.ownership.disagreement import OwnershipDisagreement
    from evenlane.engine.cluster.ownership.lease import NodeLease
    from evenlane.engine.cluster.ownership.partition_host import PartitionHost
    from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.engine.cluster.subscriptions.registry import RegistryView
    from evenlane.engine.core.lane.handoff_state import HandoffState
    from evenlane.ring.coordination.ports import Coordination
    from evenlane.ring.membership.actions import Action
    from evenlane.ring.membership.member import Member

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_AT_ONCE = 32  # concurrent transactions
_ACQUIRED_AT_ONCE, _ACQUIRING_S = 4, 0.05
_LEASE_ENDED = "its lease in etcd has ended"


class ActionExecutor:
    """Executes actions for one session. Each action that takes time is a task, which reports its outcome to `member`
    and carries out the actions that follow. The callbacks and `moves` are those of `Membership`.

    Invariants: `_opening` has a partition's task from `Open` until the partition is open, closed or dropped;
    `_handed_off` has the state of partitions that are closed but not yet released. `_timer` is set while `member` has
    a deadline.
    """

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        node_id: str,
        lease: NodeLease,
        host: PartitionHost,
        member: Member,
        *,
        records: RecordReader,
        registry: Callable[[], RegistryView],
        moves: Counter[str],
        ownership: OwnershipDisagreement,
        unreadable: UnreadableRecords,
        on_plan: Callable[[int, int], None],
        on_lost: Callable[[str], None],
        on_fatal: Callable[[str], None],
    ) -> None:
        self._host, self._member, self._ownership = host, member, ownership
        self._moves, self._unreadable = MoveLog(names.env_of(cluster), member, moves), unreadable
        self._on_plan, self._on_lost, self._on_fatal = on_plan, on_lost, on_fatal
        self._concurrency = asyncio.Semaphore(_AT_ONCE)
        self._acquiring = Pacing(_ACQUIRED_AT_ONCE, _ACQUIRING_S)
        self._lease = lease.id
        self.keys = OwnerKeys(coordination, cluster, node_id, lease.id, records, self._concurrency, registry)
        self.publisher = HandoffPublisher(coordination, cluster, node_id, lease.id, self._on_end)
        self._receiver = HandoffReceiver(coordination, cluster, host, records, self._on_end, self._is_owned)
        self.opener = ClaimedPartitionOpener(
            host, self.keys, self._receiver, ownership, unreadable, self._is_owned, self._concurrency,
            lease=lease.id, ttl=lease.ttl,
        )  # fmt: skip
        self.recheck = UnreadableRecheck(unreadable, self.keys, self._receiver, host)
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._handed_off: dict[HandoffId, Mapping[Kind, HandoffState]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def close(self) -> None:
        """Cancel all tasks. Owner keys stay until the lease ends; their partitions count as lost by this session."""
        if self._timer is not None:
            self._timer.cancel()
        for partition, epoch in self.epochs.items():
            self._moves.note_lost(partition, epoch)
        self._moves.close()
        self._ownership.end()
        self._unreadable.keep_only(())
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.publisher.close()
        await self._receiver.close()

    @property
    def epochs(self) -> dict[int, int]:
        """Epochs of this node's partitions: those that are open, being opened, or not yet released."""
        return {partition: self.keys.epoch(partition, created) for partition, created in self._member.epochs.items()}

    def on_rollback(self, revision: int) -> None:
        """End the session, which relies on changes that etcd has lost. The next one starts from etcd's state."""
        reason = f"etcd is at revision {revision}, and owner keys are as they were before {self.keys.seen_revision}"
        self._ownership.note_difference(reason)
        self._on_lost(reason)

    def execute(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Acquire(partition):
                    self.spawn(self._acquire(action), f"acquire {partition}")
                case Clear(partition, revision):
                    self.spawn(self.keys.clear(partition, revision), f"clear {partition}")
                case Mark(partition, created):
                    self.keys.mark(partition, created, 0)
                case Open(partition, created):
                    self.keys.note_owned(partition, created)
                    self.opener.note_claim(partition)
                    self._opening[partition] = self.spawn(self._open(action), f"open {partition}")
                case Close(partition):
                    self.spawn(self._close(action, self._stop(partition)), f"close {partition}")
                case Release(partition, created):
                    self._moves.note_releasing(partition, created)
                    self.spawn(self._release(action), f"release {partition}")
                case Drop(partition, created):
                    self._moves.note_lost(partition, self.keys.epoch(partition, created))
                    self.spawn(self._drop(action, self._stop(partition)), f"drop {partition}")
                case ConfirmGeneration(generation):
                    self._moves.note_plan(len(self._member.owned), generation)
                    self.spawn(self._confirm(generation), "confirm")
        self._unreadable.keep_only(self._member.plan.desired)
        self._host.expect(more=self._member.plan.is_expecting)
        self._arm()

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run `work` as a task, which `close` cancels."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._on_end)
        return task

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """Report a failed task as fatal: it is a defect, and exiting with an error is better than hanging."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of the membership has failed", part=task.get_name(), exc_info=error)
            self._on_fatal(f"its task {task.get_name()!r} has failed: {type(error).__name__}: {error}")

    def _arm(self) -> None:
        """Schedule `tick` for the member's next deadline."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self._member.wake_at()
        if due is not None:
            wait = max(0.0, (due - now_ns()) / _SECOND)
            self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _tick(self) -> None:
        self.execute(self._member.tick(now_ns()))

    def _stop(self, partition: int) -> asyncio.Task[None] | None:
        """Start no more handlers for the partition. Returns the task that was opening it, which has been cancelled."""
        opening = self._opening.pop(partition, None)
        if opening is not None:
            opening.cancel()
        self._host.stop_partition(partition)
        self._receiver.discard(partition)
        self._ownership.note_wait_end(partition)
        return opening

    async def _is_owned(self, partition: int) -> bool:
        """Return whether etcd agrees that this node owns the partition. Raises CoordinationError."""
        return await self.keys.is_owned(partition, self._member.epochs.get(partition))

    # ---- one action each

    async def _acquire(self, action: Acquire) -> None:
        partition = action.partition
        try:
            async with self._acquiring.turn(), self._concurrency:
                created = await self.keys.claim(partition, action.plan_revision)
        except WentBack as error:
            self.on_rollback(error.revision)
        except LeaseGone:
            self._on_lost(_LEASE_ENDED)
        except NewerFormat as error:
            self.opener.report_newer(partition, error)
            await asyncio.sleep(NEWER_PAUSE_S)
            self.execute(self._member.unsure(partition, now_ns()))
        except CoordinationError as error:
            _log.info("whether a partition was acquired is unknown", partition=partition, error=str(error))
            self.execute(self._member.unsure(partition, now_ns()))
        else:
            self.execute(self._member.on_acquired(partition, created, now_ns()))

    async def _open(self, action: Open) -> None:
        partition, created = action
        began, epoch = now_ns(), self.keys.epoch(partition, created)
        _log.debug("takes over", partition=partition, epoch=epoch, generation=self._member.plan.generation)
        try:
            held = await self.opener.open(partition, epoch)
        except UnknownEpoch:
            self.execute(self._member.on_withdrawn(partition, created))
            return
        except Fenced as error:
            self._on_lost(str(error))
            return
        self._opening.pop(partition, None)
        self._receiver.follow(held)
        self._moves.note_acquired(partition, epoch, len(held), (now_ns() - began) / _SECOND)
        self.keys.mark(partition, created, self._lease)  # shows the previous owner that the partition is served
        self.execute(self._member.on_opened(partition, created, now_ns()))
        if not self._member.is_busy and not self._member.plan.is_expecting:
            self._ownership.note_agreement()  # perhaps under a plan that was carried out earlier
            self._moves.flush()

    async def _close(self, action: Close, opening: asyncio.Task[None] | None) -> None:
        partition, created = action
        epoch = self.keys.epoch(partition, created)
        if opening is not None:
            await asyncio.gather(opening, return_exceptions=True)
        self._handed_off[HandoffId(partition, epoch)] = await self._host.hand_off(partition, epoch)
        self.execute(self._member.on_closed(partition, created))

    async def _release(self, action: Release) -> None:
        partition, created = action
        epoch = self.keys.epoch(partition, created)
        handoff = HandoffId(partition, epoch)
        lanes = self._handed_off.get(handoff, {})
        puts = self.publisher.record_put(handoff, lanes, self._host.list_owed(partition))
        try:
            revision = await self.keys.release(partition, created, puts)
        except LeaseGone:
            self._on_lost(_LEASE_ENDED)
            return
        self._handed_off.pop(handoff, None)
        await self.publisher.follow(handoff, lanes, revision)
        self._moves.note_released(partition, created, epoch, sum(len(lane.running) for lane in lanes.values()))
        self.keys.discard(partition, created)
        self.execute(self._member.on_released(partition, created, now_ns()))

    async def _drop(self, action: Drop, opening: asyncio.Task[None] | None) -> None:
        if opening is not None:
            await asyncio.gather(opening, return_exceptions=True)
        await self._host.drop_partition(action.partition, self.keys.epoch(*action))
        self.keys.discard(*action)

    async def _confirm(self, generation: int) -> None:
        self._on_plan(len(self._member.owned), generation)
        self._ownership.note_agreement()
        await self.keys.confirm(generation, lambda: generation == self._member.plan.done)
