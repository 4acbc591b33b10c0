"""Carries out the decisions of `evenlane.ring.membership.member`: etcd on one side, the node on the other."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.aio.pacing import Pacing
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.troubles import Troubles
from evenlane.engine.cluster.ownership.disagreement import OwnershipDisagreement
from evenlane.engine.cluster.ownership.epochs import Epochs
from evenlane.engine.cluster.ownership.forgotten_owners import ForgottenOwners
from evenlane.engine.cluster.ownership.handoff import HandoffId, HandoffPublisher, HandoffReceiver, HandoffSink
from evenlane.engine.cluster.prefix_watch import PrefixWatch
from evenlane.engine.errors import Fenced, UnknownEpoch
from evenlane.ring.coordination.ports import (
    Absent,
    CoordinationError,
    CreatedAt,
    Delete,
    HeldUnder,
    LeaseGone,
    ModifiedAt,
    Put,
    Unavailable,
)
from evenlane.ring.membership.member import (
    Acquire,
    Clear,
    Close,
    Confirm,
    Drop,
    Mark,
    Member,
    Open,
    Owner,
    Phase,
    Release,
)
from evenlane.ring.membership.records import DoneRecord, NodeRecord, OwnerRecord, PastOwner, PlanRecord, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping

    from evenlane.engine.base.names import Kind
    from evenlane.engine.cluster.ownership.epochs import Claim
    from evenlane.engine.cluster.ownership.lease import NodeLease
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.engine.core.lane.handoff_state import HandoffState
    from evenlane.ring.coordination.ports import Compare, Coordination, KeyValue, Op
    from evenlane.ring.membership.member import Action
    from evenlane.ring.membership.records import HeldRecord

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_PAUSE_S = 0.5
_AGAIN_S = 0.2
_AT_ONCE = 32  # transactions under way
_ACQUIRED_AT_ONCE, _ACQUIRING_S = 4, 0.05
_TOGETHER_S = 0.02  # partitions that are opened in this time are told in one transaction
_MOST_OPS = 60  # in one transaction; etcd takes 128, comparisons included
_LOOK_S = 0.02


class _Untold(NamedTuple):
    """An owner key to be rewritten: its create-revision, and the lease that it must be under."""

    created: int
    lease: int


class PartitionHost(HandoffSink, Protocol):
    """What the protocol asks of the node."""

    def expect(self, *, more: bool) -> None:
        """Say whether the plan gives this node partitions that aren't open yet."""

    async def open(
        self,
        number: int,
        epoch: int,
        held: Iterable[HeldRecord] = (),
        known: Collection[PastOwner] | None = None,
        lease: int = 0,
    ) -> None:
        """Take a partition over. Raises Fenced; UnknownEpoch if the last owner isn't `known` to have ended."""

    def stop_partition(self, number: int) -> None:
        """Start nothing more of it, from this moment on."""

    def owed(self, number: int) -> Mapping[str, float]:
        """After that: the projects whose part in it others may still use, and for how many seconds."""

    async def hand_over(self, number: int, epoch: int) -> Mapping[Kind, HandoffState]:
        """Settle what has ended; what the next owner has to know."""

    async def drop_partition(self, number: int, epoch: int) -> None:
        """It is another's."""


class Membership:
    """One term of a node, under a lease that it has. `on_plan(partitions, generation)` is called when a plan has been
    carried out, `on_lost(reason)` when the term is over, `on_fatal(reason)` when going on makes no sense. `moves`
    counts the partitions that were acquired, released and lost.
    """

    def __init__(
        self,
        coordination: Coordination,
        env: str,
        node_id: str,
        lease: NodeLease,
        hands: PartitionHost,
        *,
        partitions: int,
        records: RecordReader,
        moves: Counter[str] | None = None,
        ownership: OwnershipDisagreement | None = None,
        on_plan: Callable[[int, int], None],
        on_lost: Callable[[str], None],
        on_fatal: Callable[[str], None],
    ) -> None:
        self._coordination, self._env, self.id, self._lease = coordination, env, node_id, lease
        self._hands, self._partitions = hands, partitions
        self._on_plan, self._on_lost, self._on_fatal = on_plan, on_lost, on_fatal
        self.member = Member(lease.id, lease.trusted_until, patience=3 * lease.ttl * _SECOND)
        self._records = records
        self._moves = Counter[str]() if moves is None else moves
        self._telling = HandoffPublisher(coordination, env, node_id, lease.id, self._ended)
        self._holding = HandoffReceiver(coordination, env, hands, records, self._ended, self._is_owned)
        self._epochs = Epochs(coordination, env, lease.id, records)
        self._claims: dict[int, Claim] = {}  # the last one of each partition
        self._bases: dict[HandoffId, int] = {}  # by partition and create-revision, of those that are ours
        self._ownership = ownership or OwnershipDisagreement(Troubles())
        self._outlived = ForgottenOwners(lease.ttl)
        self._stale: asyncio.TimerHandle | None = None  # set as long as the plan in etcd is an older one
        self._newest = 0  # the revision of what the watch of owners has told last
        self._opening: dict[int, asyncio.Task[None]] = {}
        self._handed: dict[HandoffId, Mapping[Kind, HandoffState]] = {}
        self._untold: dict[int, _Untold] = {}  # owner keys that lack their epoch, or their lease
        self._learnt = asyncio.Event()
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._acquiring = Pacing(_ACQUIRED_AT_ONCE, _ACQUIRING_S)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._lease.compare(
            lambda: self._keys(self.member.served), lambda: self._keys(self.member.known) | self._telling.keys
        )
        for work in (self._follow_plan, self._follow_owners, self._tell_epochs):
            self._spawn(work(), work.__name__.strip("_"))

    def _keys(self, partitions: Iterable[int]) -> frozenset[str]:
        return frozenset(map(self._owner_key, partitions))

    @property
    def epochs(self) -> dict[int, int]:
        """By partition, under which epoch it is this node's: open, being opened, or not released yet."""
        return {partition: self._epoch(partition, created) for partition, created in self.member.epochs.items()}

    def _epoch(self, partition: int, created: int) -> int:
        return self._bases.get(HandoffId(partition, created), 0) + created

    @property
    def phase(self) -> Phase:
        return self.member.phase(now_ns())

    def trusted(self, until: int) -> None:
        """The lease was renewed."""
        self.member.serving = self._lease.has_store
        self._do(self.member.renewed(until, now_ns()))

    @property
    def empty(self) -> bool:
        """Nothing is owned, nor planned for this node."""
        return not (self.member.wanted or self.member.busy or self.member.owned)

    async def leave(self, plan_s: float, grace_s: float) -> bool:
        """Release everything: within `plan_s` seconds as the leader hands it to others, then anyway; and wait until
        what still runs has ended, `grace_s` seconds at the most for all of it. Whether it has.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + grace_s
        with contextlib.suppress(CoordinationError):
            await self._lease.tell()
            if await self._has_successor():
                await self._until(lambda: not self.member.wanted, min(deadline, clock() + plan_s))
                if not self.member.wanted:  # they go in steps
                    await self._until(lambda: self.empty, (clock() + deadline) / 2)
        self._do(self.member.leave(now_ns()))
        await self._until(lambda: self.empty, deadline)
        return await self._telling.all_told(deadline - clock()) and self.empty

    async def _has_successor(self) -> bool:
        """Whether any other node can serve what this one gives up. Raises CoordinationError."""
        prefix = names.key(self._env, "nodes", "")
        for item in (await self._coordination.list(prefix)).items:
            record = self._records.read(NodeRecord, item.key, item.value)
            if item.key != prefix + self.id and record is not None and record.fit:
                return True
        return False

    @staticmethod
    async def _until(reached: Callable[[], bool], deadline: float) -> None:
        clock = asyncio.get_running_loop().time
        while clock() < deadline and not reached():  # noqa: ASYNC110 - many events lead there
            await asyncio.sleep(_LOOK_S)

    async def end(self) -> None:
        """Do nothing more. What is owned stays so until the lease ends, and is lost for this term."""
        for timer in (self._timer, self._stale):
            if timer is not None:
                timer.cancel()
        for partition, epoch in self.epochs.items():
            self._note_lost(partition, epoch)
        self._ownership.left()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._telling.close()
        await self._holding.close()

    async def let_go(self) -> None:
        """After `end`, and when the node has stopped: the next owners may handle what was left running here."""
        await self._telling.let_go()

    # ---- what etcd tells

    async def _follow_plan(self) -> None:
        key = names.key(self._env, "plan", self.id)
        async with PrefixWatch(self._coordination, key) as items:
            async for told in items:
                item = told.changed.get("")  # (others' ids may begin with ours)
                if item is not None and (record := self._records.read(PlanRecord, item.key, item.value)) is not None:
                    self._planned(item.mod_revision, record)

    def _planned(self, revision: int, record: PlanRecord) -> None:
        stale = self.member.stale_plans
        if self._stale is not None:
            self._stale.cancel()
            self._stale = None
        self.member.serving = self._lease.has_store
        wanted = [p for p in record.partitions if 0 <= p < self._partitions]
        self._do(self.member.planned(revision, record.generation, wanted, now_ns()))
        if self.member.stale_plans != stale:
            # A leader writes it anew. One of an etcd that has gone back doesn't know how far generations were.
            loop = asyncio.get_running_loop()
            self._stale = loop.call_later(self._lease.ttl, self._stale_for_long, record.generation)
            _log.warning(
                "a plan is passed over: it is older than the one carried out",
                generation=record.generation, carried_out=self.member.generation,
            )  # fmt: skip

    def _stale_for_long(self, generation: int) -> None:
        reason = f"its plan in etcd is of generation {generation}, and it has carried out {self.member.generation}"
        self._ownership.differs(reason)
        self._on_lost(reason)

    async def _follow_owners(self) -> None:
        """By their create-revision and lease alone: whatever a value says, the key is what counts."""
        async with PrefixWatch(self._coordination, names.key(self._env, "owners", "")) as items:
            async for told in items:
                now = now_ns()
                if told.whole and self.member.knows_owners:
                    self._lease.look()  # etcd was away, and may have come back as another one
                if told.gone_back:
                    self._gone_back(told.revision)
                    return
                self._newest = told.revision
                seen = {p: item for name, item in told.changed.items() if (p := self._partition(name)) is not None}
                self._note_claims(seen)
                owners = {p: Owner(item.create_revision, item.lease, item.mod_revision) for p, item in seen.items()}
                if told.whole:
                    self._do(self.member.listed(told.revision, owners, now))
                    continue
                for partition, owner in owners.items():
                    self._do(self.member.owner_seen(partition, owner, now))
                for gone in map(self._partition, told.gone):
                    if gone is not None:
                        self._do(self.member.owner_gone(gone, told.revision, now))

    def _gone_back(self, revision: int) -> None:
        """This term rests on changes that etcd has lost. A new term starts from what etcd has now."""
        reason = f"etcd is at revision {revision}, and owner keys are as they were before {self._newest}"
        self._ownership.differs(reason)
        self._on_lost(reason)

    def _note_claims(self, seen: Mapping[int, KeyValue]) -> None:
        """Of other owners: the next claim of a partition needn't ask for the last one."""
        for partition, item in seen.items():
            if item.lease != self._lease.id:
                self._outlived.taken(partition)
                record = self._records.read(OwnerRecord, item.key, item.value)
                base, before = (record.base, record.before) if record is not None else (0, ())
                self._epochs.claimed(partition, base, item.create_revision, item.lease, before)

    def _partition(self, name: str) -> int | None:
        return self._records.partition(name, self._partitions)

    # ---- what is to be done

    def _do(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Acquire(partition):
                    self._spawn(self._acquire(action), f"acquire {partition}")
                case Clear(partition):
                    self._spawn(self._clear(action), f"clear {partition}")
                case Mark(partition, epoch):
                    self._mark(partition, epoch, 0)
                case Open(partition, epoch):
                    self._note_claimed(partition, epoch)
                    self._opening[partition] = self._spawn(self._open(action), f"open {partition}")
                case Close(partition):
                    self._spawn(self._close(action, self._stopped(partition)), f"close {partition}")
                case Release(partition):
                    self._spawn(self._release(action), f"release {partition}")
                case Drop(partition, epoch):
                    self._note_lost(partition, self._epoch(partition, epoch))
                    self._spawn(self._drop(action, self._stopped(partition)), f"drop {partition}")
                case Confirm(generation):
                    self._spawn(self._confirm(generation), "confirm")
        self._hands.expect(more=self.member.expects_more)
        self._arm()

    def _note_claimed(self, partition: int, created: int) -> None:
        claim = self._claims.get(partition)
        base, before = (claim.base, claim.before) if claim is not None else (0, ())
        self._bases[HandoffId(partition, created)] = base
        self._epochs.claimed(partition, base, created, self._lease.id, before)
        self._outlived.begin(partition, now_ns())

    def _note_lost(self, partition: int, epoch: int) -> None:
        self._moves["lost"] += 1
        _log.warning("lost", partition=partition, epoch=epoch, generation=self.member.generation)

    def _mark(self, partition: int, created: int, lease: int) -> None:
        self._untold[partition] = _Untold(created, lease)
        self._learnt.set()

    def _stopped(self, partition: int) -> asyncio.Task[None] | None:
        """Nothing more of it starts from this moment on; the task that was opening it, which is about to end."""
        opening = self._opening.pop(partition, None)
        if opening is not None:
            opening.cancel()
        self._hands.stop_partition(partition)
        self._holding.forget(partition)
        self._ownership.waits_no_more(partition)
        return opening

    def _arm(self) -> None:
        """Have `tick` called when it is due."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.member.wake_at()
        if due is not None:
            wait = max(0.0, (due - now_ns()) / _SECOND)
            self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _tick(self) -> None:
        self._do(self.member.tick(now_ns()))

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A part that fails is a defect: better a node that ends and says so than one that stands still."""
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a part of the membership has failed", part=task.get_name(), exc_info=error)
            self._on_fatal(f"its part {task.get_name()!r} has failed: {type(error).__name__}: {error}")

    async def _acquire(self, action: Acquire) -> None:
        partition = action.partition
        key = self._owner_key(partition)
        compare: list[Compare] = [Absent(key), ModifiedAt(names.key(self._env, "plan", self.id), action.plan_revision)]
        try:
            async with self._acquiring.turn(), self._gate:
                await self._epochs.know(partition)
                claim, newest = self._epochs.claim(partition), self._newest
                self._claims[partition] = claim
                record = OwnerRecord(id=self.id, base=claim.base, before=[*claim.before])
                owner = Put(key, encode(record), self._lease.id)
                result = await self._coordination.txn([*compare, claim.condition], [owner, claim.put])
        except LeaseGone:
            self._on_lost("its lease in etcd has ended")
        except CoordinationError as error:
            _log.info("whether a partition was acquired is unknown", partition=partition, error=str(error))
            self._do(self.member.unsure(partition, now_ns()))
        else:
            if result.revision < newest:
                self._gone_back(result.revision)
                return
            if not result.succeeded:
                self._epochs.forget(partition)
            self._do(self.member.acquired(partition, result.revision if result.succeeded else 0, now_ns()))

    async def _clear(self, action: Clear) -> None:
        key = self._owner_key(action.partition)
        self._records.pass_over(f"{key} stands under no lease: it is cleared away")
        with contextlib.suppress(CoordinationError):
            await self._coordination.txn([ModifiedAt(key, action.revision)], [Delete(key)])

    async def _open(self, action: Open) -> None:
        partition, created = action
        began, epoch = now_ns(), self._epoch(partition, created)
        _log.debug("takes over", partition=partition, epoch=epoch, generation=self.member.generation)
        held = await self._taken_over(action, epoch)
        if held is None:
            return
        self._opening.pop(partition, None)
        self._holding.follow(held)
        self._moves["acquired"] += 1
        _log.info(
            "owned", partition=partition, epoch=epoch, generation=self.member.generation, held=len(held),
            took_s=round((now_ns() - began) / _SECOND, 3),
        )  # fmt: skip
        self._mark(partition, created, self._lease.id)  # so that the former owner sees that it is served
        self._do(self.member.opened(partition, created, now_ns()))
        if not self.member.busy and not self.member.expects_more:
            self._ownership.agrees()  # (perhaps under a plan that was carried out before)

    async def _taken_over(self, action: Open, epoch: int) -> dict[HandoffId, HeldRecord] | None:
        """What former owners hold of it; None if it isn't taken over, at least not under this epoch."""
        partition, created = action
        while True:
            held = await self._held_of(partition)
            claim = self._claims.get(partition)  # none if somebody has put the key under our lease
            known = self._outlived.known(partition, claim.before if claim is not None else ())
            try:
                await self._hands.open(partition, epoch, held.values(), known, self._lease.id)
                return held
            except UnknownEpoch as error:
                self._ownership.names_forgotten_owner(str(error))
                if error.epoch >= epoch:
                    self._hands.stop_partition(partition)
                    self._epochs.raise_above(partition, error.epoch)
                    self._outlived.withdraw(partition)
                    self._do(self.member.withdrawn(partition, created))
                    return None
                await self._outlive(action, PastOwner(error.epoch, error.lease))
            except Fenced as error:
                self._on_lost(str(error))
                return None

    async def _outlive(self, action: Open, owner: PastOwner) -> None:
        """Wait until an owner of whom etcd knows nothing can't serve the partition any more; and until etcd says that
        this node still owns it.
        """
        partition = action.partition
        self._ownership.waits(partition, owner.epoch)
        await asyncio.sleep(max(0.0, (self._outlived.until(partition) - now_ns()) / _SECOND))
        while True:
            try:
                if await self._is_owned(partition):
                    break
            except CoordinationError as error:
                _log.debug("not known whether a partition is owned", partition=partition, error=str(error))
            await asyncio.sleep(_PAUSE_S)  # if it isn't, the watch tells, or the lease does
        self._outlived.note(partition, owner)
        self._ownership.waits_no_more(partition)

    async def _is_owned(self, partition: int) -> bool:
        """Whether etcd says what this node believes. Raises CoordinationError."""
        item = await self._coordination.get(self._owner_key(partition))
        created = self.member.epochs.get(partition)
        return item is not None and (item.create_revision, item.lease) == (created, self._lease.id)

    async def _held_of(self, partition: int) -> dict[HandoffId, HeldRecord]:
        while True:
            try:
                async with self._gate:
                    return await self._holding.of(partition)
            except CoordinationError as error:
                _log.info("what former owners hold is not known yet", partition=partition, error=str(error))
                await asyncio.sleep(_PAUSE_S)

    async def _close(self, action: Close, opening: asyncio.Task[None] | None) -> None:
        partition, created = action
        epoch = self._epoch(partition, created)
        if opening is not None:
            await asyncio.gather(opening, return_exceptions=True)
        self._handed[HandoffId(partition, epoch)] = await self._hands.hand_over(partition, epoch)
        self._do(self.member.closed(partition, created))

    async def _release(self, action: Release) -> None:
        partition, created = action
        epoch = self._epoch(partition, created)
        held = HandoffId(partition, epoch)
        lanes = self._handed.get(held, {})
        key = self._owner_key(partition)
        ops: list[Op] = [*self._telling.record_put(held, lanes, self._hands.owed(partition)), Delete(key)]
        ops += self._epochs.raising(partition)
        result, lease = None, self._lease.id
        while result is None:  # whatever the watch says meanwhile: the answer tells where what is held stands
            try:
                async with self._gate:
                    result = await self._coordination.txn([CreatedAt(key, created), HeldUnder(key, lease)], ops)
                    if not result.succeeded and lease and await self._is_detached(key, created):
                        result, lease = None, 0
            except LeaseGone:
                self._on_lost("its lease in etcd has ended")
                return
            except CoordinationError as error:
                level = _log.info if isinstance(error, Unavailable) else _log.warning
                level("a release is repeated until it is answered", partition=partition, epoch=epoch, error=str(error))
                await asyncio.sleep(_AGAIN_S)
        if partition in self._untold and self._untold[partition].created == created:
            del self._untold[partition]
        self._handed.pop(held, None)
        await self._telling.follow(held, lanes, result.revision if result.succeeded else 0)
        self._moves["released"] += 1
        _log.info(
            "released", partition=partition, epoch=epoch, generation=self.member.generation,
            held=sum(len(lane.running) for lane in lanes.values()),
        )  # fmt: skip
        self._bases.pop(HandoffId(partition, created), None)
        self._do(self.member.released(partition, created, now_ns()))

    async def _is_detached(self, key: str, created: int) -> bool:
        """Whether somebody has put an owner key of ours under no lease. Raises CoordinationError."""
        item = await self._coordination.get(key)
        return item is not None and (item.create_revision, item.lease) == (created, 0)

    async def _drop(self, action: Drop, opening: asyncio.Task[None] | None) -> None:
        if opening is not None:
            await asyncio.gather(opening, return_exceptions=True)
        await self._hands.drop_partition(action.partition, self._epoch(*action))
        self._bases.pop(HandoffId(*action), None)

    async def _confirm(self, generation: int) -> None:
        self._on_plan(len(self.member.owned), generation)
        self._ownership.agrees()
        record = encode(DoneRecord(generation=generation))
        while generation == self.member.done:
            try:
                await self._coordination.put(names.key(self._env, "done", self.id), record, self._lease.id)
                return
            except LeaseGone:
                return  # the lease's keeper is told, too
            except CoordinationError as error:
                _log.info("not confirmed yet", generation=generation, error=str(error))
                await asyncio.sleep(_PAUSE_S)

    async def _tell_epochs(self) -> None:
        """Write the epochs into the owner keys, for whoever reads these: many in one transaction."""
        while True:
            await self._learnt.wait()
            await asyncio.sleep(_TOGETHER_S)
            self._learnt.clear()
            while self._untold:
                some = [self._untold.popitem() for _ in range(min(_MOST_OPS, len(self._untold)))]
                if not await self._told(some) and len(some) > 1:
                    for each in some:  # one of them was released meanwhile
                        await self._told([each])

    async def _told(self, some: list[tuple[int, _Untold]]) -> bool:
        compare: list[Compare] = []
        puts: list[Put] = []
        for partition, (created, lease) in some:
            key, base = self._owner_key(partition), self._bases.get(HandoffId(partition, created), 0)
            compare += [CreatedAt(key, created), HeldUnder(key, lease)]
            before = claim.before if (claim := self._claims.get(partition)) is not None else ()
            record = OwnerRecord(id=self.id, epoch=base + created, base=base, before=[*before])
            puts.append(Put(key, encode(record), self._lease.id))
        while True:
            try:
                return (await self._coordination.txn(compare, puts)).succeeded
            except LeaseGone:
                return True  # with all that stood under it
            except CoordinationError as error:
                _log.debug("epochs not told", error=str(error))
                await asyncio.sleep(_PAUSE_S)

    def _owner_key(self, partition: int) -> str:
        return names.key(self._env, "owners", partition)
