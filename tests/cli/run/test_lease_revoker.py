"""The leases of a process that is gone are revoked."""

import asyncio

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.cli.run.claims import Claims
from evenlane.engine.cli.run.lease_revoker import Revoker
from evenlane.engine.errors import ConfigError
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import CoordinationError, CreatedAt, Delete, Put
from evenlane.ring.membership.records import MOST_BYTES, HeldRecord, OwnerRecord, decode, encode
from tests.support.until import until

SECOND = 1_000_000_000
REVOKED = "a dead node's lease is revoked"
NOT_YET = "a dead node's lease isn't revoked yet"
LEFT = "a dead node's lease can't be revoked: it will end by itself"


def key(*parts):
    return names.key("online", *parts)


class Dead:
    """A node `a` that is dead: its lease, and what stands under it."""

    def __init__(self, etcd):
        self.etcd, self.lease = etcd, 0

    async def owned(self, *partitions):
        self.lease = await self.etcd.grant(600)
        await self.etcd.put(key("nodes", "a"), b"{}", self.lease)
        for partition in partitions:
            await self.etcd.put(key("owners", partition), encode(OwnerRecord(id="a")), self.lease)

    async def keys(self):
        """All there are, without the environment."""
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
    """What the log says of it."""
    with capture_logs() as lines:
        await asyncio.wait_for(Revoker(client or etcd.peer, "online").revoke("a", claims), 30)
    return [line["event"] for line in lines]


async def test_all_that_the_dead_one_held_goes_at_once(etcd, dead):
    """Z1, E7"""
    assert [REVOKED] == await revoked(etcd, Claims(leases=(dead.lease,)))
    assert [] == await dead.keys()


async def test_only_its_own_leases_go(etcd, dead):
    """Z1: whoever has come back under its name holds another one."""
    claims = Claims(leases=(dead.lease,))
    await etcd.revoke(dead.lease)
    await dead.owned(3)
    await revoked(etcd, claims)
    assert ["nodes/a", "owners/3"] == await dead.keys()


async def test_a_lease_that_has_ended_meanwhile_is_as_good(etcd, dead):
    etcd.advance(601)
    assert [REVOKED] == await revoked(etcd, Claims(leases=(dead.lease, 77)))


async def test_a_silent_etcd_is_asked_until_it_answers(etcd, dead):
    """Fault 9: the process died while etcd was away."""
    client = etcd.peer()
    client.cut()
    with capture_logs() as lines:
        revoking = asyncio.create_task(Revoker(lambda: client, "online").revoke("a", Claims(leases=(dead.lease,))))
        await until(lambda: lines)
        assert ["nodes/a", "owners/3", "owners/5"] == await dead.keys()
        client.heal()
        await revoking
    assert [NOT_YET, REVOKED] == [line["event"] for line in lines]
    assert [] == await dead.keys()


class Refusing(MemoryCoordination):
    async def revoke(self, lease):
        raise CoordinationError("etcd refuses: permission denied")


async def test_an_etcd_that_refuses_is_left_alone(etcd, dead):
    assert [LEFT] == await revoked(etcd, Claims(leases=(dead.lease,)), lambda: Refusing(etcd.store))
    assert ["nodes/a", "owners/3", "owners/5"] == await dead.keys()


async def test_a_client_that_cannot_be_made_is_told(etcd, dead):
    def failing():
        raise ConfigError("the certificate is gone")

    assert [LEFT] == await revoked(etcd, Claims(leases=(dead.lease,)), failing)


async def test_the_next_owners_hear_of_loans(etcd, dead):
    """Q: what others may use still is told as in an orderly release, before anybody may begin."""
    epoch = (await etcd.get(key("owners", 3))).create_revision
    lent = {"acme": now_ns() + 60 * SECOND, "other": now_ns() + 30 * SECOND, "over": now_ns() - 1}
    assert [REVOKED] == await revoked(etcd, Claims(leases=(dead.lease,), lent=lent))
    assert [f"held/3/{epoch}", f"held/5/{epoch + 1}"] == await dead.keys()
    item = await etcd.get(key("held", 3, epoch))
    record = decode(HeldRecord, item.key, item.value)
    assert (0, "a", epoch, False) == (item.lease, record.id, record.epoch, record.running)
    assert {"acme", "other"} == record.lent.keys()
    assert 30 < record.lent["acme"] <= 60
    assert record.lent["other"] <= 30


async def test_loans_that_have_ended_leave_nothing(etcd, dead):
    await revoked(etcd, Claims(leases=(dead.lease,), lent={"acme": now_ns() - 1}))
    assert [] == await dead.keys()


class Late(MemoryCoordination):
    """The dead one's own release of partition 3, which was on its way, is carried out right before ours."""

    def __init__(self, store, owner, held):
        super().__init__(store)
        self.release = [[CreatedAt(owner.key, owner.create_revision)], [held, Delete(owner.key)]]

    async def txn(self, compare, then, otherwise=()):
        if self.release:
            mine, self.release = self.release, []
            await super().txn(*mine)
        return await super().txn(compare, then, otherwise)


async def test_a_release_of_its_own_that_comes_late_is_no_way_round_the_loans(etcd, dead):
    """Q: its record goes with the lease, so the lease stays until the loans have ended."""
    owner = await etcd.get(key("owners", 3))
    until_ns = now_ns() + SECOND // 2
    held = Put(key("held", 3, owner.create_revision), b"{}", dead.lease)
    await revoked(etcd, Claims(leases=(dead.lease,), lent={"acme": until_ns}), lambda: Late(etcd.store, owner, held))
    assert now_ns() >= until_ns
    assert [f"held/5/{owner.create_revision + 1}"] == await dead.keys()


async def test_more_loans_than_a_record_may_hold_are_waited_for(etcd, dead):
    """Q"""
    until_ns = now_ns() + SECOND // 2
    lent = {f"{number:0100}": until_ns for number in range(MOST_BYTES // 100)}
    await revoked(etcd, Claims(leases=(dead.lease,), lent=lent))
    assert now_ns() >= until_ns
    assert [] == await dead.keys()
