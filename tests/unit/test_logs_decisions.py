"""One log entry for each decision on partitions, leases, leaders, plans and topics (docs/reference/logs.md)."""

import asyncio

import pytest
from structlog.contextvars import get_contextvars
from structlog.testing import capture_logs

from evenlane import Engine
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.connections import Connections
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.leader.placement_controller import PlacementController
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.node.tuning import DEFAULT
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import CreatedAt
from evenlane.ring.membership.records import NodeRecord, encode
from tests.support.log_tables import events, logged
from tests.support.membership_cluster import ENV, key
from tests.support.node.world import LANES, World
from tests.support.until import until
from tests.unit.cluster.ownership.test_lease import Client, Made

MARK = "S3CRET"


@pytest.fixture
def log():
    with capture_logs() as lines:
        yield lines


class TestPartitions:
    async def test_plan_has_one_line_with_its_moves(self, cluster, log):
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1, 3], b=[2])
        logged(log, "serving", generation=1, partitions=3, acquired=3, acquired_partitions="0-1,3", released=0, lost=0)
        await cluster.plan(a=[0], b=[1, 2, 3])
        await until(lambda: a.owned == [0] and b.owned == [1, 2, 3])
        await until(lambda: 4 == events(log).count("serving"))
        logged(log, "serving", generation=2, partitions=1, acquired=0, released=2, released_partitions="1,3")
        logged(log, "serving", generation=2, partitions=3, acquired=2, acquired_partitions="1,3", released=0)
        assert {"debug"} == {line["log_level"] for line in log if line["event"] in {"owned", "released"}}

    async def test_single_moves_are_logged_with_epochs_at_debug(self, cluster, log):
        """Z1: the log shows the owners of a partition in turn."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        await cluster.plan(a=[0], b=[1, 2])
        await until(lambda: a.owned == [0] and b.owned == [1, 2])
        moves = [line for line in log if line["event"] in {"owned", "released"} and line["partition"] == 1]
        assert ["owned", "owned", "released"] == sorted(line["event"] for line in moves)
        first, last = (line["epoch"] for line in moves if line["event"] == "owned")
        assert first < last
        assert {first} == {line["epoch"] for line in moves if line["event"] == "released"}

    async def test_lost_partitions_are_logged_once_per_event(self, cluster, log):
        a = await cluster.join("a")
        await cluster.own(a=[0, 1, 2])
        await cluster.client.revoke(a.lease.id)
        await until(lambda: {("drop", 0), ("drop", 1), ("drop", 2)} <= {*a.host.calls})
        logged(log, "lost", count=3, lost_partitions="0-2", generation=1)
        assert ["warning"] == [line["log_level"] for line in log if line["event"] == "lost" and "count" in line]

    async def test_partitions_lost_with_the_session_are_logged_once(self, cluster, log):
        """Z1: even if etcd no longer answers, so that the log shows the last owner of each partition."""
        a = await cluster.join("a")
        await cluster.own(a=[0, 1])
        moves = a.moves
        await cluster.client.delete(key("owners", 0))
        await until(lambda: moves["lost"] == 1 and moves["acquired"] == 3)
        logged(log, "partitions moved", partitions=2, acquired=1, acquired_partitions="0", lost=1, lost_partitions="0")
        await a.membership.end()
        assert ["0", "0-1"] == [line["lost_partitions"] for line in log if line["event"] == "lost" and "count" in line]
        assert 3 == moves["lost"] == moves["acquired"]

    async def test_partitions_released_without_a_plan_are_logged(self, cluster, log):
        a = await cluster.join("a")
        await cluster.own(a=[0, 1])
        assert await a.membership.leave(0, 10)
        await a.membership.end()
        logged(log, "partitions moved", partitions=0, released=2, released_partitions="0-1", missing="")
        assert "lost" not in events(log)

    async def test_end_of_catch_up_is_logged(self, log):
        async with World() as world:
            for number in range(DEFAULT.tail_beyond + 1):
                world.store.put(f"lanes.online.{LANES[0].partition}.acme.0.mid", b"", b"%d" % number)
            await world.node()
            await until(lambda: "caught up" in events(log))
        logged(log, "caught up", partition=0, epoch=1, kind="lanes", messages=DEFAULT.tail_beyond + 1)


class TestLease:
    async def test_fencing_and_renewal_are_logged(self, log):
        made = Made(Client().peer(), ttl=1)
        await made.lease.join()
        made.client.cut()
        await until(lambda: "fenced: nothing starts until the lease is renewed" in events(log))
        made.client.heal()
        await until(lambda: "the lease is renewed: handlers start again" in events(log) or made.lost)
        await made.lease.end()
        logged(log, "fenced: nothing starts until the lease is renewed", node="a")
        logged(log, "the lease is renewed: handlers start again", node="a")
        assert 0 < logged(log, "the lease isn't renewed", node="a")["left_s"] < 1
        assert 1 == events(log).count("the lease isn't renewed"), "only the first failed renewal is logged"


class TestPlans:
    async def test_plan_that_gives_nothing_is_logged(self, cluster, log):
        a = await cluster.join("a")
        await cluster.plan(a=[])
        await until(lambda: a.carried_out == [(0, 1)])
        logged(log, "standing by", env="online", partitions=0, generation=1, acquired=0)

    async def test_written_plan_is_logged(self, log):
        def fail(_request):
            raise KeyError("rack")

        class FakeTopicCache:
            on_change = []  # noqa: RUF012

            def all(self):
                return {}

        client = MemoryCoordination()
        lease = await client.grant(600)
        for name in ("a", "b"):
            await client.put(key("nodes", name), encode(NodeRecord()), lease)
        epoch = await client.put(key("leader"), b"{}")
        controller = PlacementController(
            client,
            ENV,
            ClusterConfig(partitions=4),
            FakeTopicCache(),
            ("racks", fail),
            RecordReader(ENV),
        )
        serving = asyncio.ensure_future(controller.serve(CreatedAt(key("leader"), epoch)))
        await until(lambda: "planned" in events(log))
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        logged(log, "planned", generation=1, epoch=epoch, nodes=2, changed=2, gone=0, gathers=False)
        logged(
            log, "placement strategy failed, so bounded-ring places",
            strategy="racks", error="the placement strategy failed: KeyError: 'rack'",
        )  # fmt: skip


@pytest.fixture
async def etcd():
    return MemoryCoordination()


async def spec(etcd, project, raw):
    return await etcd.put(f"/evenlane/online/topics/{project}", raw)


class TestTopics:
    async def test_leadership_and_states_of_topics_are_logged(self, etcd, log):
        controller = TopicController(etcd.peer(), "online", ClusterConfig(), "n1")
        await controller.start()
        revision = await spec(etcd, "acme", b'{"qps": 100}')
        await until(lambda: "a topic is in force" in events(log))
        epoch = logged(log, "leads", node="n1")["epoch"]
        logged(log, "a topic is in force", project="acme", state="active", before="none", qps=100, revision=revision)
        for state, before in (("paused", "active"), ("draining", "paused"), ("active", "draining")):
            await spec(etcd, "acme", b'{"qps": 100, "state": "%s"}' % state.encode())
            await until(lambda expected=("a topic is in force", state, before): expected in self.states(log))
        bad = await spec(etcd, "acme", b'{"qps": -1}')
        await until(lambda: controller.alarms)
        line = logged(log, "a topic is refused, the last good one stays", project="acme", field="qps", revision=bad)
        assert line["reason"].startswith("qps must be a number")
        await etcd.delete("/evenlane/online/topics/acme")
        await until(lambda: ("a topic is in force", "deleted", "active") in self.states(log))
        groups = range(logged(log, "a topic is in force", state="deleted")["groups"])
        await until(lambda: controller.remove_groups("acme", groups))
        await controller.close()
        logged(log, "a topic is gone", project="acme")
        logged(log, "leads no more", node="n1", epoch=epoch)

    @staticmethod
    def states(log):
        return [(line["event"], line.get("state"), line.get("before")) for line in log]

    @pytest.mark.parametrize(
        "push",
        [
            '{"url": "https://user:S3CRET@example.com/"}',
            '{"url": "https://example.com/", "headers": {"Authorization": "S3CRET\\n"}}',
            '{"url": "https://example.com/#?token=S3CRET"}',
            '{"url": "https://example.com/", "secret_ref": "S3CRET/x"}',
            '{"url": "https://example.com/", "headers": ["Authorization: S3CRET"]}',
            '"https://example.com/?token=S3CRET"',
        ],
    )
    async def test_rejection_logs_the_field_and_no_secret(self, etcd, log, push):
        controller = TopicController(etcd.peer(), "online", ClusterConfig(), "n1")
        await controller.start()
        await spec(etcd, "acme", f'{{"qps": 1, "push": {push}}}'.encode())
        await until(lambda: controller.alarms)
        await controller.close()
        assert logged(log, "a topic is refused, the last good one stays")["field"].startswith("push")
        assert MARK not in str(log)


class RecordingEtcd(MemoryCoordination):
    """Keeps the node that log entries name while the node watches etcd."""

    def __init__(self):
        super().__init__()
        self.nodes = []

    def watch(self, prefix, *, exact=False):
        self.nodes.append(get_contextvars().get("node"))
        return super().watch(prefix, exact=exact)


class RecordingConnections(Connections):
    def __init__(self, etcd):
        self._etcd = etcd

    def etcd(self, _settings):
        return self._etcd


async def test_entries_before_joining_name_the_node():
    """As those of the topic watch, in a program that embeds the engine, too."""
    etcd, before = RecordingEtcd(), get_contextvars()
    settings = Settings(node="w-1", store=("memory://",))
    async with Engine(lambda _message: None, settings=settings, connect=RecordingConnections(etcd)):
        assert {"w-1"} == {*etcd.nodes}
    assert before == get_contextvars()
