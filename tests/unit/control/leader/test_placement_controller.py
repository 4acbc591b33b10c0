"""Placement controller on etcd in memory: nodes join, leave and die, and the plan follows."""

import asyncio
import threading
from dataclasses import replace
from itertools import pairwise

import pytest
import structlog

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.leader.placement_controller import PlacementController, PlacementTuning
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.ring.coordination.ports import DeleteKey
from evenlane.ring.membership.records import (
    OwnerRecord,
    PlanRecord,
    encode,
)
from evenlane.ring.placement.bounded import place_in_bounds
from evenlane.ring.placement.zones import place_in_zones
from tests.support.membership_cluster import ENV, MembershipCluster, key
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time
from tests.unit.control.leader.placement_cluster import LEADER, FakeTopicCache, PlacementCluster

QUICK = PlacementTuning(load_ns=1_000_000)


@pytest.fixture
async def world(request):
    made = PlacementCluster(**getattr(request, "param", {}))
    yield made
    await made.end()


def fail(_request):
    raise KeyError("rack")


class TestStrategy:
    @pytest.mark.parametrize("world", [{"strategy": place_in_zones}], indirect=True)
    async def test_strategy_gets_the_zones_of_nodes(self, world):
        """C2: with two zones, neighbouring partitions are in different ones."""
        await world.join("a", "b", zone="one")
        await world.join("c", "d", zone="two")
        await world.lead()
        planned = await world.among("a", "b", "c", "d")
        zones = [planned[partition] in "ab" for partition in sorted(planned)]
        assert all(one != other for one, other in pairwise(zones))

    @pytest.mark.parametrize("world", [{"strategy": fail}, {"strategy": lambda _request: ["stranger"]}], indirect=True)
    async def test_partitions_have_owners_although_the_strategy_fails(self, world):
        """C2: the built-in one places, and the log names the defect."""
        with structlog.testing.capture_logs() as log:
            await world.join("a", "b")
            await world.lead()
            planned = await world.among("a", "b")
        assert {"a", "b"} == set(planned.values())
        errors = [line for line in log if line["log_level"] == "error"]
        assert ["placement strategy failed, so bounded-ring places"] == list({line["event"] for line in errors})
        assert "tested" == errors[0]["strategy"]


class TestPlanning:
    async def test_joining_nodes_share_partitions_evenly(self, world):
        """P2: one plan has all nodes that start together."""
        await world.join("a", "b")
        await world.lead()
        planned = await world.among("a", "b")
        assert {2} == {list(planned.values()).count(name) for name in "ab"}
        assert 2 == len(world.writes())
        assert 1 == await world.generation()

    async def test_dead_node_is_replaced_and_its_plan_deleted(self, world):
        """P4."""
        await world.join("a", "b")
        await world.lead()
        before = await world.among("a", "b")
        await world.die("a")
        after = await world.among("b")
        assert {"b"} == set(after.values())
        assert 2 == await world.generation()
        assert {p for p, name in before.items() if name == "b"} <= {p for p, name in after.items() if name == "b"}

    async def test_leaving_node_keeps_an_empty_plan(self, world):
        """P5."""
        await world.join("a", "b")
        await world.lead()
        await world.among("a", "b")
        await world.join("a", leaving=True)
        await until(lambda: world.has_plans(lambda plans: plans["a"].partitions == []))
        assert {"b"} == set((await world.planned()).values())

    async def test_surplus_nodes_are_on_standby(self, world):
        """Z3."""
        names = [f"n{n}" for n in range(6)]
        await world.join(*names)
        await world.lead()
        await world.among(*names)
        assert [0, 0, 1, 1, 1, 1] == sorted(len(record.partitions) for record in (await world.plans()).values())

    async def test_each_plan_has_a_higher_generation(self, world):
        """Z5."""
        await world.join("a")
        await world.lead()
        await world.among("a")
        for name in "bcd":
            before = await world.generation()
            await world.join(name)
            await until(lambda name=name: world.has_plans(lambda plans: name in plans))
            assert await world.generation() > before
            assert await world.generation() == max(record.generation for record in (await world.plans()).values())

    @pytest.mark.parametrize("world", [{"tuning": PlacementTuning(most_ops=3)}], indirect=True)
    async def test_plan_larger_than_a_transaction_is_written(self, world):
        names = [f"n{n}" for n in range(10)]
        await world.join(*names)
        await world.lead()
        await world.among(*names)
        await world.die(*names[1:])
        await world.among("n0")


class TestNewLeader:
    async def test_valid_plan_is_kept(self, world):
        """E6."""
        await world.join("a", "b")
        await world.lead()
        before = await world.among("a", "b")
        revision = world.writes()[-1].item.mod_revision
        world.serving.cancel()
        await world.client.delete(LEADER)
        await world.lead()
        await world.settled()
        assert (before, revision) == (await world.planned(), world.writes()[-1].item.mod_revision)

    async def test_half_written_plan_is_completed(self, world):
        """P4: a leader died after it had given partition 1 to b, and before it took it from a."""
        await world.join("a", "b")
        await world.client.put(key("plan", "a"), encode(PlanRecord(generation=3, partitions=[0, 1])))
        await world.client.put(key("plan", "b"), encode(PlanRecord(generation=4, partitions=[1, 2])))
        await world.lead()
        planned = await world.among("a", "b")
        assert ("a", "b", "b") == (planned[0], planned[1], planned[2])
        assert await world.generation() >= 5

    async def test_owners_keep_partitions_without_any_plan(self, world):
        """E6: all plan keys were lost."""
        await world.join("a", "b")
        for partition, name in enumerate("baab"):
            await world.client.put(key("owners", partition), encode(OwnerRecord(id=name)))
        await world.lead()
        assert dict(enumerate("baab")) == await world.among("a", "b")

    @in_virtual_time
    async def test_nothing_moves_before_the_nodes_are_listed(self):
        """P4: the listing of the nodes takes a minute."""
        world = PlacementCluster()
        await world.join("a", "b")
        for name, partitions in (("a", [0, 1]), ("b", [2, 3])):
            await world.client.put(key("plan", name), encode(PlanRecord(generation=3, partitions=partitions)))
        world.client.held_back.add("nodes")
        before = world.writes()
        await world.lead()
        await asyncio.sleep(60)
        world.client.watches["nodes"].gate.set()
        await world.settled()
        assert before == world.writes()
        await world.end()

    async def test_deposed_leader_writes_nothing(self, world):
        """Fault 7."""
        await world.join("a")
        await world.lead()
        await world.among("a")
        await world.client.txn([], [DeleteKey(LEADER)])
        await world.client.put(LEADER, b"{}")
        before = len(world.writes())
        await world.join("b")
        await world.serving
        assert before == len(world.writes())


class TestLoad:
    """E6: the load of each node stays near the mean. Topics v and x are on partitions 0 and 1, y is on 2."""

    def put_topics(self, world):
        for project, qps in {"v": 100_000, "x": 1, "y": 100_000}.items():
            world.put_topic(project, qps)

    async def apart(self, world):
        """Wait until the partitions of v and x are on two nodes."""

        async def check():
            planned = await world.planned()
            return planned and planned[0] != planned[1]

        await until(check)

    @pytest.mark.parametrize("world", [{"tuning": QUICK}], indirect=True)
    async def test_growing_topic_moves_a_partition(self, world):
        """E6."""
        await world.join("a", "b")
        self.put_topics(world)
        await world.lead()
        before = await world.among("a", "b")
        assert before[0] == before[1] != before[2]
        world.put_topic("x", 300_000)
        await self.apart(world)

    @pytest.mark.parametrize("world", [{"tuning": replace(QUICK, much=0)}], indirect=True)
    async def test_topic_that_changes_during_a_computation_causes_another(self, world):
        """E6: a thread computes from the topics as they were."""
        begun, gate = threading.Event(), threading.Event()

        class SlowTopics(dict):
            def items(self):
                begun.set()
                gate.wait(10)
                return super().items()

        world.topic_cache.all = lambda: SlowTopics(world.topic_cache.topics)
        try:
            await world.join("a", "b")
            self.put_topics(world)
            await world.lead()
            await until(begun.is_set)
            world.put_topic("x", 300_000)
            gate.set()
            await self.apart(world)
        finally:
            gate.set()


async def test_each_partition_has_one_owner_as_nodes_come_and_go():
    """P2-P5, Z1: nodes join, leave and die."""
    async with MembershipCluster() as cluster:
        cluster_config, topic_cache = ClusterConfig(partitions=4, max_group_qps=1_000_000), FakeTopicCache()
        placing = PlacementController(
            cluster.client.peer(),
            ENV,
            cluster_config,
            topic_cache,
            ("bounded-ring", place_in_bounds),
            RecordReader(ENV),
        )
        controller = TopicController(
            cluster.client.peer(), ENV, cluster_config, "l", 600, other_controllers=placing.serve
        )
        await controller.start()
        try:
            a, b = await cluster.join("a", "b")
            await until(lambda: _is_owned_by(cluster, "ab"))
            c = await cluster.join("c")
            await until(lambda: _is_owned_by(cluster, "abc"))
            b.leaving = True
            assert await b.membership.leave(10, 20)
            await until(lambda: _is_owned_by(cluster, "ac"))
            await a.crash()
            await until(lambda: _is_owned_by(cluster, "c"))
            await until(lambda: c.owned == [0, 1, 2, 3])  # the node opens a partition after it has written its key
        finally:
            await controller.close()


async def _is_owned_by(cluster, names):
    owners = await cluster.owners()
    return [0, 1, 2, 3] == sorted(owners) and set(names) == set(owners.values())
