"""Leases of dead processes are revoked."""

import asyncio

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.cli.run.claims import ProcessClaims
from evenlane.engine.cli.run.lease_revoker import Revoker
from evenlane.engine.errors import ConfigError
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import CoordinationError, CreatedAt, DeleteKey, PutKey
from evenlane.ring.membership.records import MOST_BYTES, HeldRecord, OwnerRecord, decode, encode
from tests.support.until import until

SECOND = 1_000_000_000
REVOKED = "a dead node's lease is revoked"
NOT_YET = "a dead node's lease isn't revoked yet"
LEFT = "a dead node's lease can't be revoked: it will end by itself"


def key(*parts):
    return names.key("online", *parts)


class Dead:
    """The dead node `a`: its lease, and the keys bound to it."""

    def __init__(self, etcd):
        self.etcd, self.lease = etcd, 0

    async def owned(self, *partitions):
        self.lease = await self.etcd.grant(600)
        await self.etcd.put(key("nodes", "a"), b"{}", self.lease)
        for partition in partitions:
            await self.etcd.put(key("owners", partition), encode(OwnerRecord(id="a")), self.lease)

    async def keys(self):
        """All keys, without the environment."""
        return [item.key.removeprefix(key("")) for item in (await self.etcd.list(key(""))).items]


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
async def dead(etcd):
    dead = Dead(etcd)
    await dead.owned(3, 5)
    return dead


async def revoked(etcd, claims, client=None):
    """Revoke; return the events in the log."""
    with capture_logs() as lines:
        await asyncio.wait_for(Revoker(client or etcd.peer).revoke("a", claims), 30)
    return [line["event"] for line in lines]


async def test_keys_of_dead_node_are_deleted_at_once(etcd, dead):
    """Z1, E7"""
    assert [REVOKED] == await revoked(etcd, ProcessClaims("online", (dead.lease,)))
    assert [] == await dead.keys()


async def test_other_leases_of_the_same_node_stay(etcd, dead):
    """Z1: a node that returned under the same name has another lease."""
    claims = ProcessClaims("online", (dead.lease,))
    await etcd.revoke(dead.lease)
    await dead.owned(3)
    await revoked(etcd, claims)
    assert ["nodes/a", "owners/3"] == await dead.keys()


async def test_ended_lease_counts_as_revoked(etcd, dead):
    etcd.advance(601)
    assert [REVOKED] == await revoked(etcd, ProcessClaims("online", (dead.lease, 77)))


async def test_revoking_is_retried_until_etcd_answers(etcd, dead):
    """Fault 9: the process died while etcd was away."""
    client = etcd.peer()
    client.cut()
    with capture_logs() as lines:
        revoking = asyncio.create_task(Revoker(lambda: client).revoke("a", ProcessClaims("online", (dead.lease,))))
        await until(lambda: lines)
        assert ["nodes/a", "owners/3", "owners/5"] == await dead.keys()
        client.heal()
        await revoking
    assert [NOT_YET, REVOKED] == [line["event"] for line in lines]
    assert [] == await dead.keys()


class Refusing(MemoryCoordination):
    async def revoke(self, lease):
        raise CoordinationError("etcd refuses: permission denied")


async def test_refusal_of_etcd_is_not_retried(etcd, dead):
    assert [LEFT] == await revoked(etcd, ProcessClaims("online", (dead.lease,)), lambda: Refusing(etcd.store))
    assert ["nodes/a", "owners/3", "owners/5"] == await dead.keys()


async def test_invalid_client_configuration_is_logged(etcd, dead):
    def failing():
        raise ConfigError("the certificate is gone")

    assert [LEFT] == await revoked(etcd, ProcessClaims("online", (dead.lease,)), failing)


async def test_next_owners_get_the_loans(etcd, dead):
    """Q: quota that others may still use is recorded as in an orderly release, before a new owner starts."""
    epoch = (await etcd.get(key("owners", 3))).create_revision
    lent = {"acme": now_ns() + 60 * SECOND, "other": now_ns() + 30 * SECOND, "over": now_ns() - 1}
    assert [REVOKED] == await revoked(etcd, ProcessClaims("online", (dead.lease,), lent=lent))
    assert [f"held/3/{epoch}", f"held/5/{epoch + 1}"] == await dead.keys()
    item = await etcd.get(key("held", 3, epoch))
    record = decode(HeldRecord, item.key, item.value)
    assert (0, "a", epoch, False) == (item.lease, record.id, record.epoch, record.is_running)
    assert {"acme", "other"} == record.lent.keys()
    assert 30 < record.lent["acme"] <= 60
    assert record.lent["other"] <= 30


async def test_ended_loans_leave_no_record(etcd, dead):
    await revoked(etcd, ProcessClaims("online", (dead.lease,), lent={"acme": now_ns() - 1}))
    assert [] == await dead.keys()


class Late(MemoryCoordination):
    """etcd carries out the dead node's own release of partition 3 right before ours."""

    def __init__(self, store, owner, held):
        super().__init__(store)
        self.release = [[CreatedAt(owner.key, owner.create_revision)], [held, DeleteKey(owner.key)]]

    async def txn(self, compare, then, otherwise=()):
        if self.release:
            mine, self.release = self.release, []
            await super().txn(*mine)
        return await super().txn(compare, then, otherwise)


async def test_late_own_release_keeps_the_loans(etcd, dead):
    """Q: the record of that release is bound to the lease, so the lease stays until the loans have ended."""
    owner = await etcd.get(key("owners", 3))
    until_ns = now_ns() + 3 * SECOND
    held = PutKey(key("held", 3, owner.create_revision), b"{}", dead.lease)
    await revoked(
        etcd, ProcessClaims("online", (dead.lease,), lent={"acme": until_ns}), lambda: Late(etcd.store, owner, held)
    )
    assert now_ns() >= until_ns
    assert [f"held/5/{owner.create_revision + 1}"] == await dead.keys()


async def test_loans_too_many_for_a_record_delay_the_revocation(etcd, dead):
    """Q"""
    until_ns = now_ns() + SECOND // 2
    lent = {f"{number:0100}": until_ns for number in range(MOST_BYTES // 100)}
    await revoked(etcd, ProcessClaims("online", (dead.lease,), lent=lent))
    assert now_ns() >= until_ns
    assert [] == await dead.keys()
