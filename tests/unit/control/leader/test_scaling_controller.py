"""The leader's part of scaling, on etcd in memory, and on a stand-in of the Kubernetes API (P10)."""

import asyncio

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.leader.scaling_controller import ScalingController
from evenlane.engine.control.scaling.record import ScalingRecord
from evenlane.engine.control.scaling.target import ScaleError
from evenlane.engine.scaler.kubernetes import DeploymentScale
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import CreatedAt
from evenlane.ring.membership.records import LoadRecord, NodeRecord, decode, encode
from tests.support.kubernetes.stand_in import KubernetesApi
from tests.support.log_tables import events, logged
from tests.support.membership_cluster import ENV, key
from tests.support.until import until

BUSY = NodeRecord(host="h", cpu=0.97, projects=9, slots=64, scaling="leader")
IDLE = NodeRecord(host="h", cpu=0.1, projects=1, slots=64, scaling="leader")


class Cluster:
    """etcd in memory with nodes, a leader's key, a Deployment, and a clock that the test sets."""

    def __init__(self, api):
        self.api, self.now = api, 1_800_000_000.0
        self.coordination = MemoryCoordination()

    async def begin(self, replicas=3, **nodes):
        self.api.replicas["prod", "nodes"] = replicas
        self.lease = await self.coordination.grant(60)
        await self.set(**nodes)
        self.fence = CreatedAt(key("leader"), await self.coordination.put(key("leader"), b"{}", self.lease))

    async def set(self, **nodes):
        for name, record in nodes.items():
            await self.coordination.put(key("nodes", name), encode(record), self.lease)

    def controller(self, mode="leader", target=None, **given):
        settings = Settings(scaling=mode, scaling_deployment="nodes", **given)
        target = target or DeploymentScale(self.api.url, "prod", "nodes", self.api.token, self.api.ca)
        return ScalingController(
            self.coordination, ENV, "a", 128, settings, RecordReader(ENV), target if mode == "leader" else None,
            clock=lambda: self.now,
        )  # fmt: skip

    @property
    def replicas(self):
        return self.api.replicas["prod", "nodes"]

    async def record(self):
        return decode(ScalingRecord, "scaling", (await self.coordination.get(key("scaling"))).value)


@pytest.fixture
async def cluster(tmp_path):
    async with KubernetesApi(tmp_path).serve() as api:
        yield Cluster(api)


async def test_leader_adds_a_replica_and_rests(cluster):
    """P10."""
    await cluster.begin(a=BUSY, b=IDLE, c=IDLE)
    controller = cluster.controller()
    with capture_logs() as lines:
        assert await controller.look(cluster.fence)
    reason = "node a uses 97% of its CPU, more than 90%"
    logged(lines, "scaled", before=3, after=4, mode="leader", reason=reason)
    for later, replicas in ((599, 4), (600, 5)):
        cluster.now = 1_800_000_000.0 + later
        assert await controller.look(cluster.fence)
        assert replicas == cluster.replicas


async def test_next_leader_knows_when_the_rest_began(cluster):
    """P10: the state is in etcd."""
    await cluster.begin(a=BUSY, b=IDLE, c=IDLE)
    await cluster.controller().look(cluster.fence)
    cluster.now += 300
    await cluster.controller().look(cluster.fence)
    assert 4 == cluster.replicas
    cluster.now += 300
    await cluster.controller().look(cluster.fence)
    assert 5 == cluster.replicas


class Dies(BaseException):
    """The leader's process ends."""


class LastAct(DeploymentScale):
    """The leader dies before it asks for a change, or after. `fails`: the API doesn't answer it."""

    dies, fails = "", False

    async def read(self):
        if self.fails:
            raise ScaleError("no answer")
        return await super().read()

    async def change(self, replicas, version):
        if self.dies != "before":
            await super().change(replicas, version)
        if self.dies:
            raise Dies


@pytest.mark.parametrize("dies", ["before", "after"])
async def test_leader_that_dies_while_it_changes_the_number_delays_no_other(cluster, dies):
    """P10: the next one rests only if the number was changed, and from then on. A failed look between loses nothing."""
    await cluster.begin(a=BUSY, b=IDLE, c=IDLE)
    target = LastAct(cluster.api.url, "prod", "nodes", cluster.api.token, cluster.api.ca)
    target.dies = dies
    with pytest.raises(Dies):
        await cluster.controller(target=target).look(cluster.fence)
    target.fails, cluster.now = True, cluster.now + 30
    assert await cluster.controller(target=target).look(cluster.fence)
    assert "no answer" == (await cluster.record()).error
    cluster.now += 30
    assert await cluster.controller().look(cluster.fence)
    assert 4 == cluster.replicas
    rests_until = 600 + (0 if dies == "after" else 60)
    for later, replicas in ((rests_until - 1, 4), (rests_until, 5)):
        cluster.now = 1_800_000_000.0 + later
        assert await cluster.controller().look(cluster.fence)
        assert replicas == cluster.replicas


async def test_change_that_somebody_takes_back_is_not_repeated_at_once(cluster):
    """P10: it counts as a change, also within the interval of the looks."""
    await cluster.begin(a=BUSY, b=IDLE, c=IDLE)
    await cluster.controller().look(cluster.fence)
    cluster.api.replicas["prod", "nodes"] = 3
    cluster.now += 30
    await cluster.controller().look(cluster.fence)
    assert 3 == cluster.replicas


async def test_leader_that_was_deposed_changes_nothing(cluster):
    """P10, P4: its record is refused, so it doesn't get to the API."""
    await cluster.begin(a=BUSY)
    await cluster.coordination.delete(key("leader"))
    assert not await cluster.controller().look(cluster.fence)
    assert ["get"] == [verb for verb, _ in cluster.api.requests]
    assert 3 == cluster.replicas


async def test_nodes_that_leave_or_have_no_lease_dont_count(cluster):
    """P10."""
    leaving = NodeRecord(host="h", cpu=0.99, leaving=True, scaling="leader")
    await cluster.begin(a=IDLE, b=IDLE, c=leaving)
    await cluster.coordination.put(key("nodes", "ghost"), encode(BUSY))
    await cluster.controller().look(cluster.fence)
    assert 2 == cluster.replicas


async def test_deployment_of_0_replicas_stays_switched_off(cluster):
    """P10: also while its nodes, and the leader, still end what runs."""
    await cluster.begin(replicas=0, a=BUSY)
    await cluster.controller().look(cluster.fence)
    record = await cluster.record()
    assert (0, 0, "0 nodes are asked for") == (cluster.replicas, record.desired, record.why.partition(",")[0])
    assert 0 == record.state.replicas
    cluster.api.replicas["prod", "nodes"] = 4
    await cluster.set(b=IDLE, c=IDLE, d=IDLE, a=IDLE)
    for later in (30, 60):
        cluster.now = 1_800_000_000.0 + later
        await cluster.controller().look(cluster.fence)
        assert 4 == cluster.replicas


async def test_leader_that_leaves_changes_nothing(cluster):
    """P10: neither its number nor that of the next leader is made by a node that ends."""
    await cluster.begin(replicas=1, a=NodeRecord(host="h", cpu=0.97, leaving=True, scaling="leader"), b=BUSY)
    assert await cluster.controller().look(cluster.fence)
    assert (1, []) == (cluster.replicas, cluster.api.requests)
    await cluster.set(a=BUSY)
    assert await cluster.controller().look(cluster.fence)
    assert 2 == cluster.replicas


async def test_leader_that_leaves_still_answers_an_autoscaler(cluster):
    """P10: its last number would be too old before a long drain has ended. It is never 0, which would end all nodes."""
    await cluster.begin(a=NodeRecord(host="h", cpu=0.1, leaving=True, scaling="keda"))
    assert await cluster.controller("keda").look(cluster.fence)
    assert 2 == (await cluster.record()).desired


async def test_conflict_is_tried_again_without_a_rest(cluster):
    """P10: a 409 loses nothing."""
    await cluster.begin(a=BUSY)
    cluster.api.interfere = True
    controller = cluster.controller()
    with capture_logs() as lines:
        for _ in range(3):
            assert await controller.look(cluster.fence)
            cluster.now += 30
    assert 3 == cluster.replicas
    assert ["the number of nodes can't be changed"] == events(lines)
    logged(lines, "the number of nodes can't be changed", mode="leader")
    assert "(409)" in (await cluster.record()).error
    cluster.api.interfere = False
    await controller.look(cluster.fence)
    assert 4 == cluster.replicas
    assert ("", 4) == ((await cluster.record()).error, (await cluster.record()).desired)


async def test_missing_role_and_missing_deployment_are_one_sentence_in_log_and_record(cluster):
    """P10: a 403 and a 404; the leader goes on."""
    await cluster.begin(a=BUSY)
    controller = cluster.controller()
    with capture_logs() as lines:
        cluster.api.role = {"get"}
        assert await controller.look(cluster.fence)
        forbidden = (await cluster.record()).error
        cluster.api.role = {"get", "patch"}
        del cluster.api.replicas["prod", "nodes"]
        assert await controller.look(cluster.fence)
        missing = (await cluster.record()).error
    assert [forbidden, missing] == [line["reason"] for line in lines]
    assert (True, True) == ("(403)" in forbidden, "(404)" in missing)


async def test_two_settings_at_once_are_refused(cluster):
    """P10: neither is carried out until they agree."""
    await cluster.begin(a=BUSY, b=NodeRecord(host="h", cpu=0.1, scaling="keda"), c=NodeRecord(host="h", scaling="off"))
    controller = cluster.controller()
    assert await controller.look(cluster.fence)
    assert (3, []) == (cluster.replicas, cluster.api.requests)
    assert (await cluster.record()).error == (
        "the setting scaling is keda on b and leader on a: nothing is scaled until it is the same on all nodes"
    )
    await cluster.set(b=IDLE)
    await controller.look(cluster.fence)
    assert 4 == cluster.replicas


async def test_without_a_target_the_number_is_only_recorded(cluster):
    """P10: for KEDA or an autoscaler; what was recommended counts as the number of replicas."""
    busy = NodeRecord(host="h", cpu=0.97, projects=9, scaling="keda")
    await cluster.begin(a=busy, b=busy)
    controller = cluster.controller("keda")
    for later, desired in ((0, 3), (30, 3), (600, 4)):
        cluster.now = 1_800_000_000.0 + later
        await controller.look(cluster.fence)
        assert desired == (await cluster.record()).desired
    assert [] == cluster.api.requests


async def test_broken_values_in_etcd_end_nothing(cluster):
    """P10: a record that somebody has written counts as none."""
    await cluster.begin(a=BUSY)
    await cluster.coordination.put(key("scaling"), b'{"mode": 7}')
    await cluster.coordination.put(key("nodes", "b"), b"nonsense", cluster.lease)
    with capture_logs() as lines:
        await cluster.controller().look(cluster.fence)
    assert 4 == cluster.replicas
    assert 1 == events(lines).count("a value in etcd is passed over"), "the placement names the record of the node"


@pytest.mark.parametrize("policy", [{}, {"scaling_policy": "need", "scaling_target": "p99 wait 2s"}])
async def test_absurd_record_of_a_node_stops_no_decision(cluster, policy):
    """P10: it is named once, until it is right, and the others count."""
    load = LoadRecord(used=64.0, wanted=100.0, handling=0.1)
    busy = structs.replace(BUSY, load=load)
    controller = cluster.controller(**policy)
    await cluster.begin(replicas=2, a=busy, b=busy)
    await controller.look(cluster.fence)
    needed = cluster.replicas
    assert needed > 2
    absurd = structs.replace(busy, slots=1, projects=10**20, load=LoadRecord(wanted=-1e300), scaling="up")
    await cluster.set(c=absurd)
    cluster.api.replicas["prod", "nodes"] = 2
    await cluster.coordination.delete(key("scaling"))
    with capture_logs() as lines:
        for _ in range(2):
            await controller.look(cluster.fence)
    assert needed == cluster.replicas
    why = "its scaling is none of off, leader, keda, hpa"
    assert [("c", why)] == [(line["node"], line["reason"]) for line in lines if line["log_level"] == "warning"]
    logged(lines, "a node doesn't count for scaling", node="c", reason=why)


async def test_looks_at_its_interval_until_it_is_deposed(cluster):
    """P10."""
    await cluster.begin(a=BUSY)
    serving = asyncio.create_task(cluster.controller(scaling_interval=0.01).serve(cluster.fence))
    await until(lambda: len(cluster.api.requests) > 3)
    await cluster.coordination.delete(key("leader"))
    await asyncio.wait_for(serving, 30)
