"""One line of the log for each decision on partitions, leases, leaders, plans and topics (docs/reference/logs.md)."""

import asyncio

import pytest
from structlog.contextvars import get_contextvars
from structlog.testing import capture_logs

from evenlane import Engine
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.record_reader import RecordReader
from evenlane.engine.control.leader.placement_controller import PlacementController
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.node.tuning import DEFAULT
from evenlane.engine.runtime.serving_status import ServingStatus
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
    async def test_owned_released_and_owned_by_the_next(self, cluster, log):
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        first = logged(log, "owned", partition=1, generation=1)
        await cluster.plan(a=[0], b=[1, 2])
        await until(lambda: a.owned == [0] and b.owned == [1, 2])
        logged(log, "released", partition=1, epoch=first["epoch"], generation=2, held=0)
        assert logged(log, "owned", partition=1, generation=2)["epoch"] > first["epoch"]
        assert 4 == events(log).count("owned"), "a line for each partition that moves, none for the others"

    async def test_lost(self, cluster, log):
        a = await cluster.join("a")
        await cluster.own(a=[0])
        epoch = logged(log, "owned", partition=0)["epoch"]
        await cluster.client.revoke(a.lease.id)
        await until(lambda: ("drop", 0) in a.host.calls)
        logged(log, "lost", partition=0, epoch=epoch, generation=1)

    async def test_lost_with_the_term(self, cluster, log):
        """Z1: the lease is over, and etcd says nothing: whoever looks for partition 1 finds who had it, once."""
        a = await cluster.join("a")
        await cluster.own(a=[0, 1])
        moves = a.moves
        await cluster.client.delete(key("owners", 0))
        await until(lambda: moves["lost"] == 1 and moves["acquired"] == 3)
        await a.membership.end()
        assert [0, 0, 1] == sorted(line["partition"] for line in log if line["event"] == "lost")
        assert 3 == moves["lost"] == moves["acquired"]

    async def test_a_backlog_that_is_caught_up_with(self, log):
        async with World() as world:
            for number in range(DEFAULT.tail_beyond + 1):
                world.store.put(f"lanes.online.{LANES[0].partition}.acme.0.mid", b"", b"%d" % number)
            await world.node()
            await until(lambda: "caught up" in events(log))
        logged(log, "caught up", partition=0, epoch=1, kind="lanes", messages=DEFAULT.tail_beyond + 1)


class TestLease:
    async def test_fenced_and_renewed_again(self, log):
        store = Client()
        made = Made(store.peer(), ttl=1)
        await made.lease.join()
        store_lease = made.client
        store_lease.cut()
        await until(lambda: "fenced: nothing starts until the lease is renewed" in events(log))
        store_lease.heal()
        await until(lambda: "the lease is renewed: handlers start again" in events(log) or made.lost)
        await made.lease.end()
        logged(log, "fenced: nothing starts until the lease is renewed", node="a")
        logged(log, "the lease is renewed: handlers start again", node="a")
        assert 0 < logged(log, "the lease isn't renewed", node="a")["left_s"] < 1
        assert 1 == events(log).count("the lease isn't renewed"), "the first that fails"


class TestPlans:
    def test_a_plan_carried_out(self, log):
        status = ServingStatus("online", lambda _partitions, _generation: None)
        status.carried_out(64, 7)
        logged(log, "serving", env="online", partitions=64, generation=7)
        status.carried_out(0, 8)
        logged(log, "standing by", env="online", partitions=0, generation=8)

    async def test_a_plan_made(self, log):
        class FakeTopicCache:
            on_change = []  # noqa: RUF012

            def all(self):
                return {}

        client = MemoryCoordination()
        lease = await client.grant(600)
        for name in ("a", "b"):
            await client.put(key("nodes", name), encode(NodeRecord()), lease)
        epoch = await client.put(key("leader"), b"{}")
        placing = PlacementController(
            client, ENV, ClusterConfig(partitions=4), FakeTopicCache(), "bounded-ring", RecordReader(ENV)
        )
        serving = asyncio.ensure_future(placing.serve(CreatedAt(key("leader"), epoch)))
        await until(lambda: "planned" in events(log))
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        logged(log, "planned", generation=1, epoch=epoch, nodes=2, changed=2, gone=0)


@pytest.fixture
async def etcd():
    return MemoryCoordination()


async def spec(etcd, project, raw):
    return await etcd.put(f"/evenlane/online/topics/{project}", raw)


class TestTopics:
    async def test_who_leads_and_what_becomes_of_topics(self, etcd, log):
        acceptor = TopicController(etcd.peer(), "online", ClusterConfig(), "n1")
        await acceptor.start()
        revision = await spec(etcd, "acme", b'{"qps": 100}')
        await until(lambda: "a topic is in force" in events(log))
        epoch = logged(log, "leads", node="n1")["epoch"]
        logged(log, "a topic is in force", project="acme", state="active", before="none", qps=100, revision=revision)
        for state, before in (("paused", "active"), ("draining", "paused"), ("active", "draining")):
            await spec(etcd, "acme", b'{"qps": 100, "state": "%s"}' % state.encode())
            await until(lambda wanted=("a topic is in force", state, before): wanted in self.states(log))
        bad = await spec(etcd, "acme", b'{"qps": -1}')
        await until(lambda: acceptor.alarms)
        line = logged(log, "a topic is refused, the last good one stays", project="acme", field="qps", revision=bad)
        assert line["reason"].startswith("qps must be a number")
        await etcd.delete("/evenlane/online/topics/acme")
        await until(lambda: ("a topic is in force", "deleted", "active") in self.states(log))
        groups = range(logged(log, "a topic is in force", state="deleted")["groups"])
        await until(lambda: acceptor.emptied("acme", groups))
        await acceptor.close()
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
    async def test_a_refusal_names_the_field_and_no_secret(self, etcd, log, push):
        acceptor = TopicController(etcd.peer(), "online", ClusterConfig(), "n1")
        await acceptor.start()
        await spec(etcd, "acme", f'{{"qps": 1, "push": {push}}}'.encode())
        await until(lambda: acceptor.alarms)
        await acceptor.close()
        assert logged(log, "a topic is refused, the last good one stays")["field"].startswith("push")
        assert MARK not in str(log)


async def test_what_a_node_begins_before_it_joins_says_whose_it_is(monkeypatch):
    """HTTP and the watch of topics log, too, in a program of one's own as well."""
    seen = {}

    async def enter(_engine):
        seen.update(get_contextvars())

    monkeypatch.setattr(Engine, "_enter", enter)
    async with Engine(lambda _message: None, settings=Settings(node="w-1")) as engine:
        assert {"node": engine.id} == seen
    assert "node" not in get_contextvars()
