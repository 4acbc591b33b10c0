"""An environment in memory whose subscriptions are created and deleted; owners and nodes are keys written by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.subscriptions.registry import RegistryRecord, Subscription, read_view, registry_key
from evenlane.engine.control.subscriptions.creation import Stores, SubscriptionCreation
from evenlane.engine.control.subscriptions.deletion import SubscriptionDeletion
from evenlane.engine.control.subscriptions.first_records import mark_logs
from evenlane.engine.control.subscriptions.reset import SubscriptionReset
from evenlane.engine.core.records import settle_record
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import ETCD_RECORDS, SETTLE_LOG, NodeRecord, OwnerRecord, SeenRecord, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.records.settle_record import SettleRecord

ENV, NAME = "online", "audit"
OTHERS = ("billing", "audit-2")
CLUSTER = names.cluster_name(ENV, NAME)
PARTITIONS = 2
LANES = [LaneId(kind, partition) for partition in range(PARTITIONS) for kind in ("lanes", "later")]
NEW = {ETCD_RECORDS: 1, SETTLE_LOG: settle_record.SHARED_VERSION}
LEASE_S = 10
_AT = 1_790_000_000 * 10**9


class Died(Exception):
    """The process ends here."""


class Life:
    """The requests of a process that dies at its `most`-th one: before it is carried out, or `after` it."""

    def __init__(self, most: int, *, after: bool = False) -> None:
        self._left, self._after = most, after

    def of(self, inner: Any) -> Any:
        """The same port, for this process."""
        return _Mortal(inner, self)

    async def spend(self, carry_out: Callable[[], Any]) -> Any:
        self._left -= 1
        if self._left < 0 or (self._left == 0 and not self._after):
            raise Died
        answer = await carry_out()
        if self._left == 0:
            raise Died
        return answer


class _Mortal:
    def __init__(self, inner: Any, life: Life) -> None:
        self._inner, self._life = inner, life

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found) or name == "now":
            return found
        return lambda *arguments, **named: self._life.spend(lambda: found(*arguments, **named))


class SubscriptionWorld:
    """`open` it before any use, and `close` it. The clock is fixed."""

    def __init__(self, *, max_queue_backlog: int | None = None) -> None:
        self.config = ClusterConfig(partitions=PARTITIONS, max_queue_backlog=max_queue_backlog)
        self.etcd = MemoryCoordination()
        self.server = MemoryServer(clock=lambda: _AT)
        self.shared = MemoryStore(self.server, ENV)
        self._own = {name: MemoryStore(self.server, names.cluster_name(ENV, name)) for name in (NAME, *OTHERS)}
        self.own = self._own[NAME]

    async def open(self) -> None:
        for store in (self.shared, *self._own.values()):
            await store.open()
        await self.shared.prepare(LANES)

    async def close(self) -> None:
        for store in (self.shared, *self._own.values()):
            await store.close()
        await self.etcd.close()

    # ---- what is under test

    def creation(self, name: str = NAME, *, life: Life | None = None, limit_s: float = 0.0) -> SubscriptionCreation:
        etcd, shared, own = self.etcd.peer(), self.shared, self._own.get(name, self.own)
        if life is not None:
            return SubscriptionCreation(
                life.of(etcd), ENV, name, self.config, Stores(life.of(shared), life.of(own)), limit_s=limit_s
            )
        return SubscriptionCreation(etcd, ENV, name, self.config, Stores(shared, own), limit_s=limit_s)

    def reset(self, name: str = NAME, *, life: Life | None = None, limit_s: float = 0.0) -> SubscriptionReset:
        etcd, shared, own = self.etcd.peer(), self.shared, self._own.get(name, self.own)
        life = life or Life(1 << 30)
        stores = Stores(life.of(shared), life.of(own))
        return SubscriptionReset(life.of(etcd), ENV, name, self.config, stores, limit_s=limit_s)

    def deletion(self, name: str = NAME, *, life: Life | None = None) -> SubscriptionDeletion:
        etcd, own = self.etcd.peer(), self._own.get(name, self.own)
        if life is not None:
            return SubscriptionDeletion(life.of(etcd), ENV, name, life.of(own))
        return SubscriptionDeletion(etcd, ENV, name, own)

    # ---- keys

    async def known(self) -> dict[str, Subscription]:
        return dict(read_view(await self.etcd.get(registry_key(ENV))).subscriptions or {})

    async def revision(self) -> int:
        return read_view(await self.etcd.get(registry_key(ENV))).revision

    async def register(self, **known: Subscription) -> int:
        return await self.etcd.put(registry_key(ENV), encode(RegistryRecord(subscriptions=known)))

    async def set_state(self, state: Any, name: str = NAME) -> None:
        known = await self.known()
        await self.register(**{**known, name: replace_state(known.get(name), state)})

    async def lose_registry(self) -> None:
        await self.etcd.delete(registry_key(ENV))

    async def node(self, node: str, reads: dict[str, int] | None = None, cluster: str = ENV) -> int:
        """A node that is alive. Returns its lease."""
        lease = await self.etcd.grant(LEASE_S)
        record = NodeRecord(reads=NEW if reads is None else reads)
        await self.etcd.put(names.key(cluster, "nodes", node), encode(record), lease)
        return lease

    async def own_partition(self, partition: int, node: str, lease: int, cluster: str = ENV) -> int:
        key = names.key(cluster, "owners", partition)
        return await self.etcd.put(key, encode(OwnerRecord(id=node)), lease)

    async def see(self, node: str, lease: int, revision: int) -> None:
        """A node follows the registry: its settle logs say so, and then its key."""
        await self.write_as_owner()
        await self.etcd.put(names.key(ENV, "seen", node), encode(SeenRecord(revision=revision)), lease)

    async def keys(self) -> list[str]:
        return [item.key for item in (await self.etcd.list(f"/evenlane/{ENV}/")).items]

    # ---- streams

    async def put(self, lane: LaneId, count: int = 1) -> None:
        tail = f"{lane.partition}.acme.0.mid" + (".500000" if lane.kind == "later" else "")
        for _ in range(count):
            await self.shared.put(f"{lane.kind}.{ENV}.{tail}", b"", b"x")

    async def log(self, lane: LaneId, cluster: str = ENV) -> list[SettleRecord]:
        store = self.shared if cluster == ENV else self.own
        return [settle_record.decode(each.body) for each in (await store.read_log(lane))[0]]

    async def append(self, lane: LaneId, *records: SettleRecord) -> None:
        """Append to the log of the cluster without a name."""
        for record in records:
            _, position = await self.shared.read_log(lane)
            await self.shared.append_log(lane, settle_record.encode(record), position, checkpoint=record.checkpoint)

    async def write_as_owner(self) -> None:
        """Write what an owner writes that follows a registry: a record of version 2 in each settle log."""
        await mark_logs(self.shared, range(PARTITIONS))

    def has_own_streams(self) -> set[bool]:
        return {self.server.find(name) is not None for name in names.own_streams(CLUSTER)}

    async def is_complete(self) -> bool:
        """Whether the subscription is created, with a record of version 2 at the end of each settle log."""
        shared = [(await self.log(lane))[-1].version for lane in LANES]
        own = [[each.version for each in await self.log(lane, CLUSTER)] for lane in LANES]
        is_active = (await self.known())[NAME].state == "active"
        return is_active and shared == [2] * len(LANES) and own == [[2]] * len(LANES)


def replace_state(found: Subscription | None, state: Any) -> Subscription:
    return Subscription(state=state, since=_AT if found is None else found.since)
