"""Leases of nodes on one etcd in memory."""

import asyncio
from contextlib import asynccontextmanager

from evenlane.engine.cluster.ownership.lease import NodeLease
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import NodeRecord, decode
from tests.support.membership_cluster import key

SECOND = 1_000_000_000


class Client(MemoryCoordination):
    """Counts grants and renewals. Renewals wait for `gate`."""

    def __init__(self, store=None):
        super().__init__(store)
        self.grants = self.renewals = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def grant(self, ttl_s):
        self.grants += 1
        return await super().grant(ttl_s)

    async def keep_alive(self, lease):
        self.renewals += 1
        await self.gate.wait()
        return await super().keep_alive(lease)


class ObservedLease:
    """The lease of node a, with what it reported. `etcd` is a client that always gets answers."""

    def __init__(self, etcd, ttl=1):
        self.etcd, self.client = etcd, Client(etcd.store)
        self.trusted_times, self.lost, self.fit = [], [], True
        self.differences, self.had = [], []
        self.lease = NodeLease(
            self.client, "online", "a", ttl, lambda: NodeRecord(leaving=not self.fit), self.trusted_times.append,
            self.lost.append, self._note_id, on_difference=self.differences.append, had=self.had,
        )  # fmt: skip
        self.ids = []  # each with whether the node's record was in etcd then

    def _note_id(self, lease):
        self.ids.append((lease, self.etcd.store.get(key("nodes", "a")) is not None))

    async def record(self):
        """The node's record in etcd, and its lease."""
        item = await self.etcd.get(key("nodes", "a"))
        return None if item is None else (decode(NodeRecord, item.key, item.value), item.lease)


@asynccontextmanager
async def leases():
    """Yield a function that makes leases on one etcd, which is its attribute `etcd`. They end with the context."""
    etcd, made = Client(), []

    def make_lease(**options):
        made.append(ObservedLease(etcd, **options))
        return made[-1]

    make_lease.etcd = etcd
    yield make_lease
    for each in made:
        each.client.heal()
        each.client.gate.set()
        await each.lease.end()
