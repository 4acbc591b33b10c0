"""Membership with invalid values in etcd: they are skipped, counted and named in the log."""

import asyncio

import pytest
from structlog.testing import capture_logs

from tests.support.membership_cluster import key
from tests.support.until import until
from tests.unit.cluster.ownership.owner_keys import owner_epoch


@pytest.mark.parametrize(
    "raw",
    [b"", b"[]", b"\xff\xfe", b'{"generation": "7", "partitions": []}', b"[" * 100_000, b"{" + b" " * (1 << 20)],
    ids=["empty", "a list", "no text", "a wrong type", "deep", "large"],
)
async def test_invalid_plan_is_skipped_and_named(cluster, raw):
    a = await cluster.join("a")
    await cluster.own(a=[0])
    with capture_logs() as logs:
        await cluster.client.put(key("plan", "a"), raw)
        await until(lambda: a.records.skipped == 1)
    assert [True] == [key("plan", "a") in entry["reason"] for entry in logs if "reason" in entry]
    assert [0] == a.owned
    await cluster.own(a=[0, 1])
    assert [] == a.fatal


async def test_planned_partition_out_of_range_is_ignored(cluster):
    a = await cluster.join("a")
    await cluster.plan(a=[-1, 0, 4, 1 << 70])
    await until(lambda: [0] == a.owned)
    assert a.membership.member.plan.done == a.membership.member.plan.generation > 0


@pytest.mark.parametrize("name", ["x", "-1", "04", "4", "٣", "1/2", "", "9" * 5_000], ids=range(8))
async def test_invalid_owner_key_is_skipped(cluster, name):
    a = await cluster.join("a")
    await cluster.client.put(key("owners", name), b"\xff")
    await cluster.own(a=[0, 1, 2, 3])
    await until(lambda: a.records.skipped >= 1)
    await cluster.client.delete(key("owners", name))
    await cluster.own(a=[0, 1, 2])


async def test_overwritten_owner_key_is_attached_again(cluster):
    """Z1: otherwise it would outlive its owner, and no node could own the partition."""
    a, _ = await cluster.join("a", "b")
    await cluster.own(a=[0])
    await cluster.client.put(key("owners", 0), b"\xff")
    await until(lambda: owner_epoch(cluster, 0))
    assert a.lease.id == (await cluster.client.get(key("owners", 0))).lease
    assert [0] == a.owned
    await a.crash()
    await cluster.own(b=[0])


@pytest.mark.parametrize("answered", ["late", "at once"])
async def test_owner_key_overwritten_during_its_release_is_released(cluster, answered):
    """Z1, O: the next owner gets the partition, and knows the running messages."""
    a, b = await cluster.join("a", "b")
    await cluster.own(a=[0])
    a.host.run(0, 5)
    a.client.late["owners"] = gate = asyncio.Event()
    await cluster.plan(a=[], b=[0])
    await until(lambda: ("hand over", 0) in a.host.calls)
    a.client.deaf = answered == "at once"
    await cluster.client.put(key("owners", 0), b"\xff")
    gate.set()
    await until(lambda: [0] == b.owned)
    assert [[5]] == [record.lanes["lanes"].running for record in b.host.held[0]]
    assert [] == a.lost


@pytest.mark.parametrize("raw", [b"", b"[]", b"\xff", b'{"id": 3}', b'{"id": "a", "lanes": {"lanes": {}}}'])
async def test_invalid_handoff_record_is_skipped(cluster, raw):
    a, b = await cluster.join("a", "b")
    await cluster.own(a=[0])
    a.host.run(0, 5)
    await cluster.client.put(key("held", 0, 3), raw)
    await cluster.client.put(key("held", "x", "y"), b"{}")
    await cluster.own(a=[], b=[0])
    assert [[5]] == [record.lanes["lanes"].running for record in b.host.held[0]]
    await until(lambda: b.records.skipped >= 1)
    (item,) = [item for item in await cluster.held() if item.key.split("/")[-1] not in ("3", "y")]
    await cluster.client.put(item.key, raw, item.lease)
    a.host.end(0, 5)
    await until(lambda: b.host.changed and b.host.changed[-1].lanes["lanes"].done == [5])
    assert [] == b.fatal
