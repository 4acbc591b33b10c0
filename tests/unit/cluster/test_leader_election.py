"""Leader election after another process has changed the leader key, on etcd in memory."""

import asyncio

import pytest

from evenlane.engine.cluster.leader_election import LeaderElection
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import PutKey
from tests.support.membership_cluster import ENV
from tests.support.until import until


class Leader:
    """Leads under its node's lease, which only etcd ends."""

    def __init__(self):
        self.etcd, self.lease, self.terms = MemoryCoordination(), 0, []
        self.election = LeaderElection(self.etcd, ENV, "a", self._term, node_lease=lambda: self.lease)
        self.key = self.election.key

    async def _term(self, epoch):
        self.terms.append(epoch)
        await asyncio.get_running_loop().create_future()

    async def begin(self):
        self.lease = await self.etcd.grant(60)
        self.election.start()
        await until(lambda: self.terms)

    async def lease_of_key(self):
        return (await self.etcd.get(self.key)).lease


@pytest.fixture
async def leader():
    made = Leader()
    yield made
    await made.election.close()
    await made.etcd.close()


async def test_leader_of_the_same_epoch_after_a_rollback_ends_the_term(leader):
    """F2: both have the same fence, so the previous leader must compare the lease."""
    store = leader.etcd.store
    wiped = store.backup()
    await leader.begin()
    store.restore(wiped)
    other = store.grant(60)
    store.txn([], [PutKey(leader.key, b"{}", other)], [])
    assert leader.terms == [store.get(leader.key).create_revision]
    await until(lambda: not leader.election.leading.is_set())
    assert (1, other) == (len(leader.terms), await leader.lease_of_key())


async def test_leader_key_without_lease_is_attached_again(leader):
    """Z1: otherwise it would outlive its leader, and no process could lead."""
    await leader.begin()
    await leader.etcd.put(leader.key, b"rubbish")

    async def is_attached():
        return await leader.lease_of_key() == leader.lease

    await until(is_attached)
    assert leader.election.leading.is_set()
    assert 1 == len(leader.terms)
