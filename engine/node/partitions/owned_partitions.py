"""The partitions that a node owns: opening them, handing them over, and what former owners still hold of them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.aio.pacing import Pacing
from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.engine.base.aio.task_errors import log_failure
from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.lane.handoff_state import HandoffState
from evenlane.engine.core.lane.settle_record import UnknownVersion
from evenlane.engine.core.message.log_fields import lane_fields
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.errors import ConfigError, UnknownEpoch
from evenlane.engine.node.partitions.partition import Partition
from evenlane.engine.node.partitions.read_ahead import ReadAhead

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping

    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.ports import LaneState, Store
    from evenlane.engine.core.queue.entry import Entry, MemoryBudget
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.counters import Counters
    from evenlane.engine.node.eligibility.eligibility import Eligibility
    from evenlane.engine.node.handlers.worker_pool import WorkerPool
    from evenlane.engine.node.queues.registry import QueueRegistry
    from evenlane.engine.node.settle.outcomes import FailureHandler
    from evenlane.engine.node.settle.settler import Settler
    from evenlane.ring.membership.records import HeldRecord, PastOwner

_log = structlog.get_logger(__name__)

_OPENED_AT_ONCE = 3  # so that each serves soon; a slow one holds up the others for no longer than
_OPENING_S = 0.05
_APART_S, _SPREAD_S = 0.02, 0.5  # from one opening to the next; from the first to the last
_LOOKED_AT_ONCE = 2
_OPEN_FIRST_S = 1.0  # so long a backlog waits for others to be open
_MANY, _AFTER_MANY_S = 8, 0.5  # after opening that many together, backlogs wait so long for other nodes
_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 5.0
_PATIENCE_S = 0.05  # for handlers of a partition that is handed over: short ones needn't be told of in etcd
_SAID_S = 1.0  # for the settle log to be told that it has ended
_LOOK_S = 0.005  # between two looks at whether what is being released has ended


class OwnedPartitions:
    """`open_queue` and `at_hand` are for the lanes, `on_delayed` is called with its queue when a delayed message came
    in, with None when some may have; `bands` are known by priority,
    `on_replaced` is called when a lane's stream has been replaced, before the lane is reset, `on_unreadable` with a
    partition and why its settle log can't be read, or with "" when that is over.

    `partitions` are those that are open or being opened. The parts of the node that work on them are set by `join`.
    """

    def __init__(
        self,
        store: Store,
        limits: MemoryBudget,
        open_queue: Callable[[FedLane, bytes, Entry | None], Queue | None],
        at_hand: Callable[[Queue], None],
        on_delayed: Callable[[Queue | None], None],
        bands: Mapping[str, int],
        on_replaced: Callable[[FedLane, LaneState], None],
        on_unreadable: Callable[[int, str], None],
        counters: Counters,
    ) -> None:
        self._store, self._limits, self._bands = store, limits, bands
        self._open_queue, self._at_hand, self._on_delayed = open_queue, at_hand, on_delayed
        self._on_replaced, self._on_unreadable, self._counters = on_replaced, on_unreadable, counters
        self.partitions: dict[int, Partition] = {}
        self.mine: set[int] = set()  # they are, or are about to be, in `partitions`
        self._closing: dict[tuple[int, int], Partition] = {}  # by epoch, too: nothing of them starts any more
        self._begun: dict[int, int] = {}  # partition -> the last epoch under which a take-over has failed half-way
        self._opening = Pacing(_OPENED_AT_ONCE, _OPENING_S)
        self._unopened = self._together = 0  # partitions; the latter the most since backlogs were fed
        self._behind: list[Partition] = []  # open, but for a backlog that is to be fed
        self._patience: asyncio.TimerHandle | None = None
        self._busy, self._ahead = SingleFlight(store.busy), ReadAhead(store)
        self._looking = asyncio.Semaphore(_LOOKED_AT_ONCE)
        self._apart: set[asyncio.Task[None]] = set()  # what nobody waits for

    def join(
        self, queues: QueueRegistry, settler: Settler, outcomes: FailureHandler, workers: WorkerPool, turns: Eligibility
    ) -> None:
        self._queues, self._settler, self._outcomes, self._workers = queues, settler, outcomes, workers
        self._turns = turns

    def lanes(self) -> list[FedLane]:
        """Of all partitions; not those of which the log has no record yet, so that the take-over's is still to come."""
        return [lane for partition in self.partitions.values() for lane in partition.both if lane.log.begun]

    def lanes_of(self, number: int) -> tuple[FedLane, FedLane] | None:
        partition = self.partitions.get(number)
        return partition.both if partition is not None else None

    def is_open(self, number: int) -> bool:
        """Whether its messages may be handed out."""
        partition = self.partitions.get(number)
        return partition is not None and partition.serving

    def put_off(self, queue: Queue) -> bool:
        """Whether its messages mustn't be handed out yet; `at_hand` is told of it when they may."""
        partition = self.partitions.get(queue.partition)
        return partition is None or not partition.serving or partition.precedence.put_off(queue)

    def must_wait(self, queue: Queue) -> bool:
        """Whether something more urgent of its group may still come in from a backlog that was taken over."""
        partition = self.partitions.get(queue.partition)
        return partition is not None and partition.precedence.must_wait(queue)

    async def verify(self, lane: Lane) -> None:
        """See `Partition.verify`. What is being handed over is verified, too: it still settles."""
        number = lane.id.partition
        partition = self._closing.get((number, lane.epoch)) or self.partitions.get(number)
        if partition is not None:
            await partition.verify(lane)

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
        """Own a partition under this epoch, but for what former owners hold: its messages come in when this returns.
        A store that goes away or refuses meanwhile is waited for. Raises Fenced; UnknownEpoch if the settle log was
        written by an owner that isn't one of `known` (None: all are), and whose end wasn't clean. `lease` is the one
        under which the epoch was claimed.
        """
        held = list(held)
        for record in held:
            self._queues.shares.defer(number, record.lent)
        self.mine.add(number)
        self._queues.shares.partition_acquired()
        self._unopened += 1
        self._together = max(self._together, self._unopened)
        try:
            async with self._opening.turn(min(_APART_S, _SPREAD_S / self._unopened)):
                partition = await self._opened(number, epoch, held, known, lease)
            self._behind.append(partition)
            self._queues.opened(number, self._at_hand)
        finally:
            self._on_unreadable(number, "")
            self._unopened -= 1
            self._catch_up()
        self._tend(partition)
        self._queues.shares.more_partitions()
        await self._completed(partition)
        self._on_delayed(None)
        self._spawn(self._look_again(partition), f"look again {number}")

    async def _look_again(self, partition: Partition) -> None:
        """At both streams, when those that were opened together have had time to serve."""
        await asyncio.sleep(_OPEN_FIRST_S)
        async with self._looking:
            while self.partitions.get(partition.number) is partition:
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
        """What the former owner left to be settled or removed."""
        for lane in partition.both:
            lane.removal.last_purge = now_ns()  # (it isn't urgent)
            if lane.log.unsettled_news:
                self._settler.note(lane)
            if lane.removal.stragglers or lane.removal.durable_watermark > lane.removal.purged:
                self._settler.tend(lane)

    async def _completed(self, partition: Partition) -> None:
        while self.partitions.get(partition.number) is partition:
            try:
                await partition.complete()
                return
            except (Lost, Refused, ConfigError) as error:
                _log.warning("delayed messages don't come in yet", **lane_fields(partition.later), error=str(error))
            await asyncio.sleep(_PAUSE_S)

    def _catch_up(self) -> None:
        """Feed backlogs when all partitions that came together are open, or a while after the first. After a death
        other nodes may still open theirs: new messages there come before a backlog.
        """
        if not self._unopened and self._together < _MANY:
            self._feed_backlogs()
        elif self._behind and self._patience is None:
            wait_s = _OPEN_FIRST_S if self._unopened else _AFTER_MANY_S
            self._patience = asyncio.get_running_loop().call_later(wait_s, self._feed_backlogs)

    def _feed_backlogs(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        behind, self._behind, self._together = self._behind, [], self._unopened
        for partition in behind:
            partition.catch_up()

    async def _opened(
        self, number: int, epoch: int, held: list[HeldRecord], known: Collection[PastOwner] | None, lease: int
    ) -> Partition:
        """The partition, open; begun anew as often as the store goes away meanwhile."""
        pause, said = _PAUSE_S, ""
        while True:
            partition = self.partitions[number] = Partition(
                self._store, number, epoch, self._limits, self._open_queue, self._at_hand, self._on_delayed,
                self._busy.read, self._turns.free, self._bands, self._ahead, self._on_replaced, lease,
            )  # fmt: skip
            repeated = known is None or self._begun.get(number) == epoch
            try:
                await partition.open(held, known, repeated=repeated)
                self._counters.ended_blocked_s += partition.ended_blocked_s
                return partition
            except UnknownEpoch:
                await self._give_up(partition)
                raise
            except (Lost, Refused, ConfigError) as error:
                again, said = str(error) == said, str(error)
                if again:
                    _log.debug("the take-over begins anew once more", partition=number, epoch=epoch, error=said)
                else:
                    _log.warning("the take-over begins anew", partition=number, epoch=epoch, error=said)
                if isinstance(error, UnknownVersion):
                    self._on_unreadable(number, said)
                await self._give_up(partition)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    async def _give_up(self, partition: Partition) -> None:
        """A take-over has failed. If it may have written to a log, this epoch is there, and is nobody else's."""
        if any(lane.log.may_have_begun for lane in partition.both):
            self._begun[partition.number] = partition.lane.epoch
        if self.partitions.get(partition.number) is partition:
            del self.partitions[partition.number]
        await self._abandon(partition)

    # ---- handing over

    def owed(self, number: int) -> dict[str, float]:
        """See `Shares.owed`."""
        return self._queues.shares.owed(number)

    def stop_partition(self, number: int) -> None:
        """From this moment on nothing more of it is handed out; what is being handled may end."""
        self.mine.discard(number)
        self._queues.forget(number)
        partition = self.partitions.pop(number, None)
        if partition is None:
            return
        self._closing[number, partition.lane.epoch] = partition
        for lane in partition.both:
            lane.stop([*self._workers.running_of(lane), *self._outcomes.pending_of(lane)])
        self._turns.forget_void()

    async def hand_over(self, number: int, epoch: int, patience_s: float = _PATIENCE_S) -> dict[Kind, HandoffState]:
        """After `stop_partition`: what the next owner has to know, by kind of stream, if anything. Handlers have
        `patience_s` to end; the rest is in the hand-over. So is each stream whose log can't be told within a second
        that its end was clean, or whose take-over was under way: that there is anything in the hand-over says so as
        well.
        """
        partition = self._closing.get((number, epoch))
        if partition is None:
            return {}  # it was never opened
        deadline = asyncio.get_running_loop().time() + patience_s
        await asyncio.gather(partition.close(), *(self._closed(lane, deadline) for lane in partition.both))
        told: dict[Kind, HandoffState] = {}
        for lane in partition.both:
            lane.cut_off()
            self._settler.forget(lane)
            if lane.handover is not None and lane.log.may_have_begun and not lane.log.closed:
                told[lane.id.kind] = (
                    lane.handover if lane.log.begun else HandoffState(lane.generation, lane.seen, set())
                )
        return told if self._closing.pop((number, epoch), None) is not None else {}  # it may have been lost meanwhile

    async def _closed(self, lane: FedLane, deadline: float) -> None:
        """Write the clean end to the log: handlers have until `deadline` to end, and the log a second to answer."""
        loop = asyncio.get_running_loop()
        while lane.to_close or (not lane.ended and loop.time() < deadline):
            if loop.time() >= deadline + _SAID_S:
                return
            self._settler.flush(lane)
            await asyncio.sleep(_LOOK_S)

    async def drop_partition(self, number: int, epoch: int) -> None:
        """After `stop_partition`: it is another's by now, so nothing more of it is settled or told."""
        partition = self._closing.pop((number, epoch), None)
        if partition is not None:
            await self._abandon(partition)

    async def close(self) -> None:
        """Nothing more comes in."""
        for task in self._apart:
            task.cancel()
        each = [*self.partitions.values(), *self._closing.values()]
        await asyncio.gather(*(partition.close() for partition in each), return_exceptions=True)

    def end(self) -> None:
        """The process ends, and nothing more is handed out of any partition: the settler writes the clean ends."""
        for partition in [*self.partitions.values(), *self._closing.values()]:
            for lane in partition.both:
                if lane.handover is None:
                    lane.stop([])
                lane.left()
                if lane.log.begun:  # else its take-over was broken off: nothing is to be said, or waited for
                    self._settler.note(lane)

    async def _abandon(self, partition: Partition) -> None:
        for lane in partition.both:
            lane.abandon()
            self._settler.forget(lane)
        self._turns.forget_void()
        await partition.close()

    # ---- what former owners hold

    def held_changed(self, number: int, record: HeldRecord) -> None:
        """Some of it has ended there."""
        if (partition := self.partitions.get(number)) is not None:
            partition.former.changed(record)
            for lane in partition.both:
                self._settler.note(lane)

    def held_let_go(self, number: int, record: HeldRecord) -> None:
        """Its holder lives, and doesn't handle this after all: it is handed out here."""
        if (partition := self.partitions.get(number)) is not None:
            partition.former.let_go(record)
            for lane in partition.both:
                self._settler.note(lane)

    def held_gone(self, number: int, record: HeldRecord) -> None:
        """Its holder has gone, and it hadn't ended: it is handed out here."""
        if (partition := self.partitions.get(number)) is not None:
            self._spawn(self._let_go(partition, record), f"let go {number}")

    async def _let_go(self, partition: Partition, record: HeldRecord) -> None:
        while self.partitions.get(partition.number) is partition:
            try:
                await partition.former.gone(record)
                for lane in partition.both:
                    self._settler.note(lane)
                return
            except (Lost, Refused) as error:
                _log.debug("not let go yet", partition=partition.number, error=str(error))
            await asyncio.sleep(_PAUSE_S)

    def held_durable(self, number: int, record: HeldRecord) -> bool:
        """Whether all of it that has ended is settled for good, and what was lent has run out: should this node die,
        the next owner has to know that, too.
        """
        partition = self.partitions.get(number)
        return partition is not None and partition.former.durable(record) and not self._queues.shares.waits_for(number)
