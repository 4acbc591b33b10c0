"""Membership of a node in the cluster: feeds events from etcd to `evenlane.ring.membership.member`, which decides."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.troubles import Troubles
from evenlane.engine.cluster.ownership.action_executor import ActionExecutor
from evenlane.engine.cluster.ownership.disagreement import OwnershipDisagreement
from evenlane.engine.cluster.ownership.unreadable_records import UnreadableRecords
from evenlane.engine.cluster.prefix_watch import PrefixWatch
from evenlane.engine.cluster.subscriptions.registry import RegistryView
from evenlane.ring.coordination.ports import CoordinationError
from evenlane.ring.membership.member import Member
from evenlane.ring.membership.owner_keys import Owner
from evenlane.ring.membership.records import NodeRecord, PlanRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.cluster.ownership.lease import NodeLease
    from evenlane.engine.cluster.ownership.partition_host import PartitionHost
    from evenlane.engine.cluster.prefix_watch import WatchUpdate
    from evenlane.engine.cluster.record_reader import RecordReader
    from evenlane.ring.coordination.ports import Coordination
    from evenlane.ring.membership.phase import Phase

_log = structlog.get_logger(__name__)

_SECOND = 1_000_000_000
_LOOK_S = 0.02


class Membership:
    """Membership of one session, under a lease that the node already has. `on_plan(partitions, generation)` is called
    when a plan has been carried out, `on_lost(reason)` when the session is over, `on_fatal(reason)` when the process
    must exit. `moves` counts acquired, released and lost partitions.
    """

    def __init__(
        self,
        coordination: Coordination,
        cluster: str,
        node_id: str,
        lease: NodeLease,
        host: PartitionHost,
        *,
        partitions: int,
        records: RecordReader,
        registry: Callable[[], RegistryView] = RegistryView,
        moves: Counter[str] | None = None,
        ownership: OwnershipDisagreement | None = None,
        unreadable: UnreadableRecords | None = None,
        on_plan: Callable[[int, int], None],
        on_lost: Callable[[str], None],
        on_fatal: Callable[[str], None],
    ) -> None:
        self._coordination, self._cluster, self.id, self._lease = coordination, cluster, node_id, lease
        self._partitions, self._records, self._on_lost = partitions, records, on_lost
        self._ownership = ownership or OwnershipDisagreement(Troubles())
        unreadable = unreadable or UnreadableRecords(Troubles())
        self.member = Member(lease.id, lease.trusted_until, clear_after=3 * lease.ttl * _SECOND)
        self._executor = ActionExecutor(
            coordination, cluster, node_id, lease, host, self.member,
            records=records, registry=registry, moves=Counter() if moves is None else moves, ownership=self._ownership,
            unreadable=unreadable, on_plan=on_plan, on_lost=on_lost, on_fatal=on_fatal,
        )  # fmt: skip
        self._keys = self._executor.keys
        self._stale: asyncio.TimerHandle | None = None  # set while etcd's plan is older than the one carried out

    def start(self) -> None:
        keys, publisher = self._keys, self._executor.publisher
        self._lease.compare(
            lambda: keys.keys(self.member.served), lambda: keys.keys(self.member.known) | publisher.keys
        )
        self._executor.spawn(self._follow_plan(), "follow_plan")
        self._executor.spawn(self._follow_owners(), "follow_owners")
        self._executor.spawn(keys.write_epochs(), "write_epochs")
        self._executor.spawn(self._executor.recheck.run(), "recheck unreadable records")

    async def end(self) -> None:
        """Stop. Owner keys stay until the lease ends, and their partitions count as lost by this session."""
        if self._stale is not None:
            self._stale.cancel()
        await self._executor.close()

    async def publish_release(self) -> None:
        """Allow the next owners to handle messages left running. Called after `end`, once the node has stopped."""
        await self._executor.publisher.publish_release()

    def on_renewed(self, until: int) -> None:
        """Note that the lease was renewed, and is trusted until this time (monotonic ns)."""
        self.member.serving = self._lease.has_store
        self._executor.execute(self.member.on_renewed(until, now_ns()))

    def reopen(self) -> None:
        """Take all partitions over again, handlers that run included: the subscription was reset."""
        self._executor.execute(self.member.reopen())

    # ---- state for other parts

    @property
    def epochs(self) -> dict[int, int]:
        """Epochs of this node's partitions: those that are open, being opened, or not yet released."""
        return self._executor.epochs

    @property
    def phase(self) -> Phase:
        return self.member.phase(now_ns())

    @property
    def unwritten(self) -> int:
        """Number of owner keys that wait to be rewritten with their epoch, without those of a transaction under way."""
        return self._keys.unwritten

    @property
    def is_empty(self) -> bool:
        """Whether the node owns no partition and is assigned none."""
        return not (self.member.plan.desired or self.member.is_busy or self.member.owned)

    # ---- leaving

    async def leave(self, plan_s: float, grace_s: float) -> bool:
        """Release all partitions and wait for the handlers still running. Returns whether all of it finished in time.

        For `plan_s` seconds the leader may reassign the partitions; the node then releases them anyway. `grace_s`
        seconds limit the whole.
        """
        clock = asyncio.get_running_loop().time
        deadline = clock() + grace_s
        with contextlib.suppress(CoordinationError):
            await self._lease.publish()
            if await self._has_successor():
                await self._wait_until(lambda: not self.member.plan.desired, min(deadline, clock() + plan_s))
                if not self.member.plan.desired:  # partitions are released in steps
                    await self._wait_until(lambda: self.is_empty, (clock() + deadline) / 2)
        self._executor.execute(self.member.leave(now_ns()))
        await self._wait_until(lambda: self.is_empty, deadline)
        return await self._executor.publisher.wait_until_published(deadline - clock()) and self.is_empty

    async def _has_successor(self) -> bool:
        """Whether any other node can serve this node's partitions. Raises CoordinationError."""
        prefix = names.key(self._cluster, "nodes", "")
        for item in (await self._coordination.list(prefix)).items:
            record = self._records.read(NodeRecord, item.key, item.value)
            if item.key != prefix + self.id and record is not None and record.is_fit:
                return True
        return False

    @staticmethod
    async def _wait_until(reached: Callable[[], bool], deadline: float) -> None:
        clock = asyncio.get_running_loop().time
        while clock() < deadline and not reached():  # noqa: ASYNC110 - many events lead there
            await asyncio.sleep(_LOOK_S)

    # ---- events from etcd

    async def _follow_plan(self) -> None:
        key = names.key(self._cluster, "plan", self.id)
        async with PrefixWatch(self._coordination, key) as updates:
            async for update in updates:
                item = update.changed.get("")  # the prefix also matches ids that begin with ours
                if item is not None and (record := self._records.read(PlanRecord, item.key, item.value)) is not None:
                    self._on_plan(item.mod_revision, record)

    def _on_plan(self, revision: int, record: PlanRecord) -> None:
        stale = self.member.plan.stale
        if self._stale is not None:
            self._stale.cancel()
            self._stale = None
        self.member.serving = self._lease.has_store
        desired = [p for p in record.partitions if 0 <= p < self._partitions]
        self._executor.execute(self.member.on_plan(revision, record.generation, desired, now_ns()))
        if self.member.plan.stale != stale:
            # A leader writes the plan again. After an etcd rollback, however, the leader doesn't know the highest
            # generation that had been reached.
            loop = asyncio.get_running_loop()
            self._stale = loop.call_later(self._lease.ttl, self._stale_for_long, record.generation)
            _log.warning(
                "a plan is passed over: it is older than the one carried out",
                generation=record.generation, carried_out=self.member.plan.generation,
            )  # fmt: skip

    def _stale_for_long(self, generation: int) -> None:
        reason = f"its plan in etcd is of generation {generation}, and it has carried out {self.member.plan.generation}"
        self._ownership.note_difference(reason)
        self._on_lost(reason)

    async def _follow_owners(self) -> None:
        async with PrefixWatch(self._coordination, names.key(self._cluster, "owners", "")) as updates:
            async for update in updates:
                if update.whole and self.member.knows_owners:
                    self._lease.renew_now()  # etcd was unreachable, and may have been replaced or restored meanwhile
                if update.gone_back:
                    self._executor.on_rollback(update.revision)
                    return
                self._on_owners_change(update)

    def _on_owners_change(self, update: WatchUpdate) -> None:
        """Apply a change of owner keys. Only a key's create-revision and lease count, whatever its value says."""
        now = now_ns()
        self._keys.seen_revision = update.revision
        seen = {p: item for name, item in update.changed.items() if (p := self._partition(name)) is not None}
        others = {p: item for p, item in seen.items() if item.lease != self._lease.id}
        self._executor.opener.note_claims_elsewhere(others)
        self._keys.observe(others)
        self._executor.recheck.note_claims_elsewhere(others)
        owners = {p: Owner(item.create_revision, item.lease, item.mod_revision) for p, item in seen.items()}
        execute = self._executor.execute
        if update.whole:
            execute(self.member.on_listing(update.revision, owners, now))
            return
        for partition, owner in owners.items():
            execute(self.member.on_owner_put(partition, owner, now))
        for gone in map(self._partition, update.gone):
            if gone is not None:
                execute(self.member.on_owner_delete(gone, update.revision, now))

    def _partition(self, name: str) -> int | None:
        return self._records.partition(name, self._partitions)
