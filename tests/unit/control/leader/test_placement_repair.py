"""Placement controller: plans and records that others have changed, and plans that an etcd rollback has lost."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from evenlane.ring.membership.records import (
    NodeRecord,
    OwnerRecord,
    PlanRecord,
    encode,
)
from tests.support.membership_cluster import key
from tests.support.until import until
from tests.unit.control.leader.placement_cluster import LEADER, PlacementCluster


@pytest.fixture
async def world(request):
    made = PlacementCluster(**getattr(request, "param", {}))
    yield made
    await made.end()


def changed_by_others(logs):
    return [entry["of_node"] for entry in logs if entry["event"].startswith("a plan was changed by somebody else")]


class TestForeignWrites:
    @pytest.mark.parametrize("raw", [b"", b"\xff", b'{"generation": 99, "partitions": [0, 1, 2, 3]}', None])
    async def test_changed_plan_is_rewritten(self, world, raw):
        """Z5: the new value has a generation that its node accepts."""
        await world.join("a", "b")
        await world.lead()
        before = await world.among("a", "b")
        await (world.client.delete(key("plan", "a")) if raw is None else world.client.put(key("plan", "a"), raw))
        await until(lambda: world.is_planned(before))
        assert (await world.plans())["a"].generation > (99 if raw and b"99" in raw else 1)

    async def test_foreign_change_is_logged(self, world):
        await world.join("a", "b")
        await world.lead()
        before = await world.among("a", "b")
        with capture_logs() as logs:
            await world.client.put(key("plan", "a"), b"{}")
            await until(lambda: world.is_planned(before))
            await until(lambda: changed_by_others(logs))
        assert ["a"] == changed_by_others(logs)

    async def test_plan_of_the_next_leader_is_not_logged(self, world):
        """F12: after a stop, a leader sees its successor's plan before it learns that it leads no more."""
        await world.join("a", "b")
        await world.lead()
        await world.among("a", "b")
        with capture_logs() as logs:
            await world.client.delete(LEADER)
            await world.client.put(LEADER, b"{}")
            newer = PlanRecord(generation=2, partitions=[0, 1, 2, 3])
            await world.client.put(key("plan", "a"), encode(newer))
            await asyncio.wait_for(world.serving, 30)
        assert [] == changed_by_others(logs)
        assert newer == (await world.plans())["a"]

    async def test_plan_changed_during_a_write_is_rewritten(self, world):
        """Another process changes a plan between the leader's write and etcd's answer."""
        await world.join("a", "b")
        await world.lead()
        await world.among("a", "b")
        world.client.gates["plan"] = gate = asyncio.Event()
        before = len(world.writes())
        await world.join("c")
        await until(lambda: len(world.writes()) > before)
        del world.client.gates["plan"]
        revision = await world.client.put(key("plan", "a"), encode(PlanRecord(generation=1, partitions=[0, 1, 2, 3])))
        await until(lambda: world.client.has_handled("plan", revision))
        gate.set()
        await world.among("a", "b", "c")

    @pytest.mark.parametrize("raw", [b"", b"\xff", b'{"generation": "9"}', b'{"generation": 41, "strategy": "x"}'])
    async def test_generation_rises_after_its_record_was_corrupted(self, world, raw):
        await world.client.put(key("generation"), raw)
        await world.join("a")
        await world.client.put(key("plan", "a"), encode(PlanRecord(generation=7, partitions=[])))
        await world.lead()
        await world.among("a")
        assert (42 if b"41" in raw else 8) == await world.generation()
        assert (b"41" not in raw) == world.records.skipped

    async def test_invalid_values_are_counted_and_named(self, world):
        await world.client.put(key("plan", "a"), b"\xff")
        await world.client.put(key("owners", 1), b"\xff")
        await world.client.put(key("owners", "x"), b"{}")
        await world.client.put(key("owners", -1), encode(OwnerRecord(id="a")))
        await world.client.put(key("nodes", "ghost"), b"\xff")
        await world.join("a")
        with capture_logs() as logs:
            await world.lead()
            await world.among("a")
        reasons = " ".join(str(entry.get("reason")) for entry in logs)
        for name in (key("plan", "a"), key("owners", 1), key("nodes", "ghost")):
            assert name in reasons
        assert world.records.skipped >= 4

    async def test_node_record_without_lease_gets_no_plan(self, world):
        await world.client.put(key("nodes", "ghost"), encode(NodeRecord()))
        await world.join("a")
        await world.lead()
        await world.among("a")

    async def test_live_node_with_an_invalid_record_keeps_its_partitions(self, world):
        """The key shows that the node lives, the lease that the key is its own."""
        await world.join("a", "b")
        await world.lead()
        before = await world.among("a", "b")
        await world.client.put(key("nodes", "a"), b"\xff", world.leases["a"])
        await until(lambda: world.records.skipped)
        await world.settled()
        assert before == await world.planned()


class TestEtcdRollback:
    """F3: the leader still leads, and its plans are older ones, or gone."""

    @pytest.mark.parametrize("older", [True, False])
    async def test_all_plans_are_rewritten(self, world, older):
        await world.join("a")
        await world.lead()
        await world.among("a")
        backup = world.client.store.backup()
        if not older:
            keys = {name: item for name, item in backup.keys.items() if "/plan/" not in name}
            backup = replace(backup, keys=keys, history=())
        await world.join("b")
        await world.among("a", "b")
        newest = await world.generation()
        world.client.restore(backup)
        del world.leases["b"]
        await world.join("b")
        await world.among("a", "b")
        assert [True, True] == [record.generation > newest for record in (await world.plans()).values()]

    async def test_missing_plan_is_rewritten_at_its_own_revision(self, world):
        """The listing without the plan isn't older than the plan."""
        await world.join("a")
        await world.lead()
        await world.among("a")
        await world.settled()
        backup = world.client.store.backup()
        assert backup.keys[key("plan", "a")].mod_revision == backup.revision
        keys = {name: item for name, item in backup.keys.items() if "/plan/" not in name}
        world.client.restore(replace(backup, keys=keys, history=()))
        await world.among("a")
