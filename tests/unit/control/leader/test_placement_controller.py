"""The leader's work on placement, on etcd in memory: nodes come and go, and the plan follows."""

import asyncio
import threading
from contextlib import suppress
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.leader import placement_controller as module
from evenlane.engine.control.leader.placement_controller import PlacementController, Tuning
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.quota.topics.topic import accept, complete, parse_spec
from evenlane.ring.coordination.ports import CreatedAt, Delete
from evenlane.ring.membership.records import (
    GenerationRecord,
    NodeRecord,
    OwnerRecord,
    PlanRecord,
    RecordError,
    decode,
    encode,
)
from tests.support.membership_cluster import ENV, Client, MembershipCluster, key
from tests.support.until import until

PARTITIONS = 4
LEADER = key("leader")


class FakeTopicCache:
    """Topics, as the leader knows them."""

    def __init__(self):
        self.on_change, self.topics = [], {}

    def all(self):
        return dict(self.topics)

    def put(self, project, qps, cluster_config):
        raw = b'{"qps": %d, "groups": 4}' % qps
        self.topics[project] = accept(complete(parse_spec(raw), cluster_config), 1, None)
        for reported in self.on_change:
            reported(project, self.topics[project])


class PlacementCluster:
    def __init__(self, partitions=PARTITIONS, tuning=Tuning()):  # noqa: B008 - frozen
        self.cluster_config = ClusterConfig(partitions=partitions, max_group_qps=1_000_000)
        self.client, self.topic_cache = Client(), FakeTopicCache()
        self.placing = PlacementController(
            self.client, ENV, self.cluster_config, self.topic_cache, "bounded-ring", RecordReader(ENV), tuning
        )
        self.leases, self.serving = {}, None

    async def lead(self):
        epoch = await self.client.put(LEADER, b"{}")
        self.serving = asyncio.ensure_future(self.placing.serve(CreatedAt(LEADER, epoch)))

    async def end(self):
        if self.serving is not None:
            self.serving.cancel()
            await asyncio.gather(self.serving, return_exceptions=True)
        await self.client.close()

    async def join(self, *names, **fields):
        for name in names:
            self.leases[name] = self.leases.get(name) or await self.client.grant(600)
            await self.client.put(key("nodes", name), encode(NodeRecord(**fields)), self.leases[name])

    async def go(self, *names):
        for name in names:
            await self.client.revoke(self.leases.pop(name))

    async def plans(self):
        """Those that are plans."""
        found = {}
        for item in (await self.client.list(key("plan", ""))).items:
            with suppress(RecordError):
                found[item.key.rpartition("/")[2]] = decode(PlanRecord, item.key, item.value)
        return found

    async def planned(self):
        """Partition -> node; None while some partition is nobody's, or two nodes'."""
        found = [(p, name) for name, record in (await self.plans()).items() for p in record.partitions]
        return dict(found) if len(found) == len(dict(found)) == self.cluster_config.partitions else None

    async def among(self, *names):
        """Waits until these nodes, and no others, have a plan, and it is whole."""

        async def check():
            planned = await self.planned()
            return planned if planned and sorted(names) == sorted(await self.plans()) else None

        return await until(check)

    async def generation(self):
        item = await self.client.get(key("generation"))
        return decode(GenerationRecord, item.key, item.value).generation

    def writes(self):
        return [e for e in self.client.store._history if e.item.key.startswith(key("plan", ""))]


@pytest.fixture
async def world(request):
    made = PlacementCluster(**getattr(request, "param", {}))
    yield made
    await made.end()


class TestPlanning:
    async def test_nodes_that_join_get_their_part(self, world):
        """P2: those that start together in one plan."""
        await world.join("a", "b")
        await world.lead()
        planned = await world.among("a", "b")
        assert {2} == {list(planned.values()).count(name) for name in "ab"}
        assert 2 == len(world.writes())
        assert 1 == await world.generation()

    async def test_one_that_dies_is_replaced_and_its_key_removed(self, world):
        """P4."""
        await world.join("a", "b")
        await world.lead()
        before = await world.among("a", "b")
        await world.go("a")
        after = await world.among("b")
        assert {"b"} == set(after.values())
        assert 2 == await world.generation()
        assert {p for p, name in before.items() if name == "b"} <= {p for p, name in after.items() if name == "b"}

    async def test_one_that_leaves_keeps_an_empty_plan(self, world):
        """P5."""
        await world.join("a", "b")
        await world.lead()
        await world.among("a", "b")
        await world.join("a", leaving=True)
        await until(lambda: _is(world.plans(), lambda plans: plans["a"].partitions == []))
        assert {"b"} == set((await world.planned()).values())

    async def test_more_nodes_than_partitions_stand_by(self, world):
        """Z3."""
        names = [f"n{n}" for n in range(6)]
        await world.join(*names)
        await world.lead()
        await world.among(*names)
        assert [0, 0, 1, 1, 1, 1] == sorted(len(record.partitions) for record in (await world.plans()).values())

    async def test_each_plan_is_newer_and_is_said_to_be(self, world):
        """Z5."""
        await world.join("a")
        await world.lead()
        await world.among("a")
        for name in "bcd":
            before = await world.generation()
            await world.join(name)
            await until(lambda name=name: _is(world.plans(), lambda plans: name in plans))
            assert await world.generation() > before
            assert await world.generation() == max(record.generation for record in (await world.plans()).values())

    @pytest.mark.parametrize("world", [{"tuning": Tuning(most_ops=3)}], indirect=True)
    async def test_a_plan_larger_than_a_transaction(self, world):
        names = [f"n{n}" for n in range(10)]
        await world.join(*names)
        await world.lead()
        await world.among(*names)
        await world.go(*names[1:])
        await world.among("n0")


class TestLeading:
    async def test_a_new_leader_leaves_a_plan_that_is_good_as_it_is(self, world):
        """E6."""
        await world.join("a", "b")
        await world.lead()
        before = await world.among("a", "b")
        revision = world.writes()[-1].item.mod_revision
        world.serving.cancel()
        await world.client.delete(LEADER)
        await world.lead()
        await until(lambda: world.placing._leader.phase == "leading" and world.placing._leader.due() is None)
        assert (before, revision) == (await world.planned(), world.writes()[-1].item.mod_revision)

    async def test_half_a_plan_of_a_leader_that_died_is_made_whole(self, world):
        """P4: 1 had been given to b, but not taken from a."""
        await world.join("a", "b")
        await world.client.put(key("plan", "a"), encode(PlanRecord(generation=3, partitions=[0, 1])))
        await world.client.put(key("plan", "b"), encode(PlanRecord(generation=4, partitions=[1, 2])))
        await world.lead()
        planned = await world.among("a", "b")
        assert ("a", "b", "b") == (planned[0], planned[1], planned[2])
        assert await world.generation() >= 5

    async def test_without_any_plan_owners_keep_what_they_have(self, world):
        """E6: all plan keys are lost, and nothing moves."""
        await world.join("a", "b")
        for partition, name in enumerate("baab"):
            await world.client.put(key("owners", partition), encode(OwnerRecord(id=name)))
        await world.lead()
        assert dict(enumerate("baab")) == await world.among("a", "b")

    async def test_one_that_knows_no_nodes_yet_takes_nothing_from_anybody(self, world):
        """P4: the listing of the nodes is slow to come."""
        await world.join("a", "b")
        for name, partitions in (("a", [0, 1]), ("b", [2, 3])):
            await world.client.put(key("plan", name), encode(PlanRecord(generation=3, partitions=partitions)))
        watch, gate = world.client.watch, asyncio.Event()

        def slow(prefix):
            made = watch(prefix)
            if prefix == key("nodes", ""):
                reported = made.__anext__

                async def late():
                    await gate.wait()
                    return await reported()

                made.later = late
                return _Late(made)
            return made

        world.client.watch = slow
        await world.lead()
        await until(lambda: world.placing._leader._knows_plans)
        before = len(world.writes())
        assert None is world.placing._leader.due()
        gate.set()
        await until(lambda: world.placing._leader.phase == "leading" and world.placing._leader.due() is None)
        assert before == len(world.writes())

    async def test_one_that_is_deposed_writes_nothing_more(self, world):
        """Fault 7."""
        await world.join("a")
        await world.lead()
        await world.among("a")
        await world.client.txn([], [Delete(LEADER)])
        await world.client.put(LEADER, b"{}")
        before = len(world.writes())
        await world.join("b")
        await world.serving
        assert before == len(world.writes())


class _Late:
    """A watch whose first word is late."""

    def __init__(self, watch):
        self._watch = watch

    def __aiter__(self):
        return self

    async def __anext__(self):
        return await self._watch.later()

    async def aclose(self):
        await self._watch.aclose()


def changed_by_others(logs):
    return [entry["of_node"] for entry in logs if entry["event"].startswith("a plan was changed by somebody else")]


class TestMeddling:
    @pytest.mark.parametrize("raw", [b"", b"\xff", b'{"generation": 99, "partitions": [0, 1, 2, 3]}', None])
    async def test_a_plan_that_somebody_changed_is_written_anew(self, world, raw):
        """Z5: under a generation that its node takes."""
        await world.join("a", "b")
        await world.lead()
        before = await world.among("a", "b")
        await (world.client.delete(key("plan", "a")) if raw is None else world.client.put(key("plan", "a"), raw))
        await until(lambda: _is_planned(world, before))
        assert (await world.plans())["a"].generation > (99 if raw and b"99" in raw else 1)

    async def test_it_is_said_of_somebody_else(self, world):
        await world.join("a", "b")
        await world.lead()
        before = await world.among("a", "b")
        with capture_logs() as logs:
            await world.client.put(key("plan", "a"), b"{}")
            await until(lambda: _is_planned(world, before))
            await until(lambda: changed_by_others(logs))
        assert ["a"] == changed_by_others(logs)

    async def test_it_is_not_said_of_the_next_leader(self, world):
        """F12: one that was stopped sees the next one's plan before it hears that it leads no more."""
        await world.join("a", "b")
        await world.lead()
        await world.among("a", "b")
        with capture_logs() as logs:
            await world.client.delete(LEADER)
            await world.client.put(LEADER, b"{}")
            newer = PlanRecord(generation=2, partitions=[0, 1, 2, 3])
            await world.client.put(key("plan", "a"), encode(newer))
            await asyncio.wait_for(world.serving, 5)
        assert [] == changed_by_others(logs)
        assert newer == (await world.plans())["a"]

    async def test_even_in_the_moment_between_the_leaders_write_and_its_answer(self, world):
        await world.join("a", "b")
        await world.lead()
        await world.among("a", "b")
        world.client.gates["plan"] = gate = asyncio.Event()
        before = len(world.writes())
        await world.join("c")
        await until(lambda: len(world.writes()) > before)
        del world.client.gates["plan"]
        await world.client.put(key("plan", "a"), encode(PlanRecord(generation=1, partitions=[0, 1, 2, 3])))
        await until(lambda: "a" in world.placing._leader._spoilt)
        gate.set()
        await world.among("a", "b", "c")

    @pytest.mark.parametrize("raw", [b"", b"\xff", b'{"generation": "9"}', b'{"generation": 41, "strategy": "x"}'])
    async def test_a_spoilt_generation(self, world, raw):
        await world.client.put(key("generation"), raw)
        await world.join("a")
        await world.client.put(key("plan", "a"), encode(PlanRecord(generation=7, partitions=[])))
        await world.lead()
        await world.among("a")
        assert (42 if b"41" in raw else 8) == await world.generation()
        assert (b"41" not in raw) == world.placing._records.skipped

    async def test_spoilt_values_are_counted_and_named(self, world):
        """Issue 4."""
        await world.client.put(key("plan", "a"), b"\xff")
        await world.client.put(key("owners", 1), b"\xff")
        await world.client.put(key("owners", "x"), b"{}")
        await world.client.put(key("owners", -1), encode(OwnerRecord(id="a")))
        await world.client.put(key("nodes", "ghost"), b"\xff")
        await world.join("a")
        with capture_logs() as logs:
            await world.lead()
            await world.among("a")
        reported = " ".join(str(entry.get("reason")) for entry in logs)
        for name in (key("plan", "a"), key("owners", 1), key("nodes", "ghost")):
            assert name in reported
        assert world.placing._records.skipped >= 4

    async def test_what_stands_under_no_lease_is_no_node(self, world):
        """Nobody would serve what it is given."""
        await world.client.put(key("nodes", "ghost"), encode(NodeRecord()))
        await world.join("a")
        await world.lead()
        await world.among("a")

    async def test_a_living_node_whose_record_is_spoilt_keeps_what_it_has(self, world):
        """The key says that it lives, its lease that it is its own."""
        await world.join("a", "b")
        await world.lead()
        before = await world.among("a", "b")
        await world.client.put(key("nodes", "a"), b"\xff", world.leases["a"])
        await until(lambda: world.placing._records.skipped)
        await until(lambda: world.placing._leader.phase == "leading" and world.placing._leader.due() is None)
        assert before == await world.planned()


class TestLoad:
    @pytest.mark.parametrize("world", [{"tuning": Tuning(load_ns=1_000_000)}], indirect=True)
    async def test_a_topic_that_grows_moves_partitions(self, world, monkeypatch):
        """E6: the load of each node stays near the mean."""
        await world.join("a", "b")
        world.topic_cache.put("x", 1, world.cluster_config)
        await world.lead()
        await world.among("a", "b")
        asked = []
        place = module.place
        monkeypatch.setattr(module, "place", lambda *given: asked.append(given[1]) or place(*given))
        world.topic_cache.put("x", 100_000, world.cluster_config)
        await until(lambda: asked and max(asked[-1]) > 10_000)

    async def test_one_that_changes_while_a_thread_computes_counts_too(self, monkeypatch):
        """The computation had begun with the old ones."""
        world = PlacementCluster(tuning=Tuning(load_ns=1_000_000, much=0))
        begun, gate, asked, place = threading.Event(), threading.Event(), [], module.place

        def slow(nodes, loads, *more):
            asked.append(max(loads))
            begun.set()
            gate.wait(10)
            return place(nodes, loads, *more)

        monkeypatch.setattr(module, "place", slow)
        try:
            await world.join("a", "b")
            world.topic_cache.put("x", 1, world.cluster_config)
            await world.lead()
            await until(begun.is_set)
            world.topic_cache.put("x", 100_000, world.cluster_config)
            gate.set()
            await until(lambda: asked[-1] > 10_000)
            assert asked[0] < 10
        finally:
            gate.set()
            await world.end()


async def test_leader_and_nodes_together():
    """P2-P5, Z1: nodes join, leave and die; in the end each partition has one owner, as planned."""
    async with MembershipCluster() as cluster:
        cluster_config, topic_cache = ClusterConfig(partitions=4, max_group_qps=1_000_000), FakeTopicCache()
        placing = PlacementController(
            cluster.client.peer(), ENV, cluster_config, topic_cache, "bounded-ring", RecordReader(ENV)
        )
        controller = TopicController(
            cluster.client.peer(), ENV, cluster_config, "l", 600, other_controllers=placing.serve
        )
        await controller.start()
        try:
            a, b = await cluster.join("a", "b")
            await until(lambda: _whole(cluster, "ab"))
            c = await cluster.join("c")
            await until(lambda: _whole(cluster, "abc"))
            b.leaving = True
            assert await b.membership.leave(10, 20)
            await until(lambda: _whole(cluster, "ac"))
            await a.crash()
            await until(lambda: _whole(cluster, "c"))
            assert [0, 1, 2, 3] == c.owned
        finally:
            await controller.close()


async def _whole(cluster, names):
    owners = await cluster.owners()
    return [0, 1, 2, 3] == sorted(owners) and set(names) == set(owners.values())


async def _is(found, check):
    return check(await found)


async def _is_planned(world, planned):
    return await world.planned() == planned


class TestEtcdGoesBack:
    """F3: the leader still leads, and its plans are older ones, or gone."""

    @pytest.mark.parametrize("older", [True, False])
    async def test_all_plans_are_written_anew(self, world, older):
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

    async def test_even_if_its_revision_is_that_of_the_plan_by_now(self, world):
        """The plan is gone, and the listing isn't older than it."""
        await world.join("a")
        await world.lead()
        await world.among("a")
        await until(lambda: world.placing._leader.phase == "leading" and world.placing._leader.due() is None)
        backup = world.client.store.backup()
        assert backup.keys[key("plan", "a")].mod_revision == backup.revision
        keys = {name: item for name, item in backup.keys.items() if "/plan/" not in name}
        world.client.restore(replace(backup, keys=keys, history=()))
        await world.among("a")
