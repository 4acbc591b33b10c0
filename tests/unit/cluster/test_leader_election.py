"""Whose the leader's key is after somebody else has had to do with it, on etcd in memory."""

import asyncio

import pytest

from evenlane.engine.cluster.leader_election import LeaderElection
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Put
from tests.support.membership_cluster import ENV
from tests.support.until import until


class Leading:
    """One that leads under its node's lease, which nobody but etcd ends."""

    def __init__(self):
        self.etcd, self.lease, self.terms = MemoryCoordination(), 0, []
        self.leadership = LeaderElection(self.etcd, ENV, "a", self._term, node_lease=lambda: self.lease)
        self.key = self.leadership.key

    async def _term(self, epoch):
        self.terms.append(epoch)
        await asyncio.get_running_loop().create_future()

    async def begin(self):
        self.lease = await self.etcd.grant(60)
        self.leadership.start()
        await until(lambda: self.terms)

    async def held(self):
        """Under which lease the key stands."""
        return (await self.etcd.get(self.key)).lease


@pytest.fixture
async def leading():
    made = Leading()
    yield made
    await made.leadership.close()
    await made.etcd.close()


async def test_one_that_has_its_epoch_after_etcd_went_back_leads_in_its_place(leading):
    """F2: the fence of both is the same, so the former one must see by the lease that it leads no more."""
    store = leading.etcd.store
    wiped = store.backup()
    await leading.begin()
    store.restore(wiped)
    other = store.grant(60)
    store.txn([], [Put(leading.key, b"{}", other)], [])
    assert leading.terms == [store.get(leading.key).create_revision]
    await until(lambda: not leading.leadership.leading.is_set())
    assert (1, other) == (len(leading.terms), await leading.held())


async def test_a_key_that_was_put_under_no_lease_is_again_under_its_leaders(leading):
    """Z1: else it would outlive its leader, and nobody could lead."""
    await leading.begin()
    await leading.etcd.put(leading.key, b"rubbish")
    await until(lambda: _is_held(leading))
    assert leading.leadership.leading.is_set()
    assert 1 == len(leading.terms)


async def _is_held(leading):
    return await leading.held() == leading.lease
