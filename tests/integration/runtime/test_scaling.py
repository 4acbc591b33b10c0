"""Scaling by real nodes on real servers, one test for each way to carry it out (P10)."""

import asyncio
from dataclasses import replace

import aiohttp
import grpc
import pytest
from structlog.testing import capture_logs

from evenlane import Producer, Put, Settings
from evenlane.engine.base import names
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.cluster_config import agree_cluster_config
from evenlane.engine.errors import ConfigError
from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.engine.scaler.keda.protos import CLASSES, METHODS, SERVICE
from evenlane.ring.membership.records import NodeRecord, decode
from tests.support.kubernetes.stand_in import KubernetesApi
from tests.support.node.running import running_engine
from tests.support.topics import put_specs
from tests.support.until import until

pytestmark = pytest.mark.real


@pytest.fixture
def settings(nats_server, etcd_server, env):
    return Settings(
        nats=(nats_server.url,), etcd=(etcd_server.endpoint,), env=env, partitions=4, node="a", scaling_interval=1.0,
        http_port=0,
    )  # fmt: skip


async def metric(engine):
    async with aiohttp.ClientSession() as session, session.get(f"{engine.http.address}/metrics") as page:
        lines = (await page.text()).splitlines()
    return next((line for line in lines if line.startswith("evenlane_desired_nodes{")), "")


async def test_metric_for_an_autoscaler_has_the_number_of_nodes(settings):
    """P10: one node, and two are the least."""
    async with running_engine(replace(settings, scaling="hpa")) as engine:
        assert await until(lambda: metric(engine)) == f'evenlane_desired_nodes{{env="{settings.env}"}} 2.0'


async def test_nodes_with_different_settings_scale_nothing(settings):
    """P10: two at once are refused, and one sentence in the log names the nodes."""
    with capture_logs() as lines:
        async with running_engine(replace(settings, scaling="hpa")) as engine:
            await until(lambda: metric(engine))
            async with running_engine(replace(settings, node="b", scaling="keda", scaling_listen="127.0.0.1:0")):
                refused = await until(
                    lambda: [line for line in lines if line["event"] == "the number of nodes can't be changed"]
                )
                await until(lambda: engine.desired_nodes is None)
                assert "" == await metric(engine)
    reason = "the setting scaling is hpa on a and keda on b: nothing is scaled until it is the same on all nodes"
    assert {reason} == {line["reason"] for line in refused}


async def test_keda_is_answered_by_a_node(settings):
    """P10."""
    address = f"127.0.0.1:{free_port()}"
    async with (
        running_engine(replace(settings, scaling="keda", scaling_listen=address)),
        grpc.aio.insecure_channel(address) as channel,
    ):
        method = METHODS["GetMetrics"]
        ask = channel.unary_unary(
            f"/{SERVICE}/GetMetrics", method.request.SerializeToString, method.response.FromString
        )  # fmt: skip

        async def answer():
            try:
                return await ask(CLASSES["GetMetricsRequest"](metricName="evenlane-desired-nodes"))
            except grpc.aio.AioRpcError:  # before the first look
                return None

        [value] = (await until(answer)).metricValues
        assert (2, 2.0) == (value.metricValue, value.metricValueFloat)


async def test_scale_in_by_the_leader_ends_no_running_handler(settings, tmp_path):
    """P10, P6: two nodes with next to no projects; the leader asks for one, its pod is ended by a drain, and what runs
    there is handled to its end, once.
    """
    etcd = connections.etcd(settings)
    config = await agree_cluster_config(etcd, settings.env, {"partitions": 4})
    await put_specs(etcd, settings.env, config, {"acme": '{"qps": 100, "groups": 4, "spread": 4}'})
    await etcd.close()
    started, ended, may_end = [], [], asyncio.Event()

    async def handle(message):
        started.append(message.id)
        await may_end.wait()
        ended.append(message.id)

    async with KubernetesApi(tmp_path).serve() as api:
        api.replicas["prod", "nodes"] = 1
        leading = replace(
            settings, scaling="leader", scaling_deployment="nodes", scaling_namespace="prod", scaling_api=api.url,
            scaling_token_file=api.token, scaling_ca=api.ca, scaling_min=1, scaling_rest=0.0,
        )  # fmt: skip
        async with (
            running_engine(leading, handle) as first,
            running_engine(replace(leading, node="b"), handle) as second,
        ):
            await until(lambda: second.node.partitions and len(first.node.partitions) < 4)
            async with Producer(settings=settings) as producer:
                for group in range(4):
                    await producer.put("acme", b"x", group=group)
            await until(lambda: len(started) == 4 and second.node.in_flight)
            api.on_change = lambda _replicas: second.stop()
            api.replicas["prod", "nodes"] = 2
            await until(lambda: second.is_stopping)
            assert (1, []) == (api.replicas["prod", "nodes"], ended)
            may_end.set()
            await until(lambda: len(ended) == 4)
        assert sorted(ended) == sorted(started)


@pytest.mark.full
async def test_node_counts_messages_that_wait_for_slots_and_not_those_that_wait_for_their_quota(settings):
    """P10, X6: from the queues of a real node to the number of nodes."""
    etcd = connections.etcd(settings)
    config = await agree_cluster_config(etcd, settings.env, {"partitions": 4})
    specs = {"acme": '{"qps": 0.1, "burst": 1}', "bolt": '{"qps": 10000}'}
    await put_specs(etcd, settings.env, config, specs)

    async def handle(_message):
        await asyncio.sleep(0.1)

    async def load():
        found = await etcd.get(names.key(settings.env, "nodes", "a"))
        return decode(NodeRecord, "nodes/a", found.value).load

    needs = replace(
        settings, scaling="hpa", scaling_policy="need", scaling_target="p99 wait 1s", scaling_recovery=5.0,
        scaling_max=9, concurrency=2, lease_ttl=2.0,
    )  # fmt: skip
    async with running_engine(needs, handle) as engine, Producer(settings=settings) as producer:
        await producer.put_many([Put("acme", b"x") for _ in range(5_000)])
        await until(lambda: _has_blocked(load))
        assert 2 == await until(lambda: engine.desired_nodes)
        await producer.put_many([Put("bolt", b"x") for _ in range(1_000)])
        # 1,000 messages of 0.1 s, to be handled within 5 s, take 20 slots of 2 a node; there are 4 partitions
        await until(lambda: engine.desired_nodes == 4)
    await etcd.close()


async def _has_blocked(load):
    found = await load()
    return found is not None and found.blocked.get("quota", 0) > 4_900


async def test_leader_outside_of_a_pod_does_not_start(settings):
    """P10: one sentence says what to set."""
    with pytest.raises(ConfigError, match=r"^scaling: leader needs the Kubernetes API: run the node in a pod, or set"):
        async with running_engine(replace(settings, scaling="leader", scaling_deployment="nodes")):
            raise AssertionError("it has started")
