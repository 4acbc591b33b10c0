"""The external scaler of KEDA, asked by a client of gRPC over TCP (P10)."""

import socket
from contextlib import asynccontextmanager

import grpc
import pytest

from evenlane.engine.errors import PortUnavailable
from evenlane.engine.scaler.keda.protos import CLASSES, METHODS, SERVICE
from evenlane.engine.scaler.keda.server import KedaServer
from tests.support.until import until
from tests.unit.scaler.records import ENV, Leader


class Client:
    """Asks as KEDA does: with the metadata of the trigger, each value of which is a text."""

    def __init__(self, channel, metadata):
        self._channel = channel
        self.reference = CLASSES["ScaledObjectRef"](name="nodes", namespace="prod", scalerMetadata=metadata)

    def call(self, name):
        method = METHODS[name]
        make = self._channel.unary_stream if method.is_stream else self._channel.unary_unary
        return make(f"/{SERVICE}/{name}", method.request.SerializeToString, method.response.FromString)

    async def metrics(self, name="evenlane-desired-nodes"):
        request = CLASSES["GetMetricsRequest"](scaledObjectRef=self.reference, metricName=name)
        return await self.call("GetMetrics")(request)

    async def refusal(self, call):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        return caught.value.code().name, caught.value.details()


@asynccontextmanager
async def serving(**metadata):
    async with Leader() as leader:
        server = KedaServer("127.0.0.1:0", ENV, leader.recommendations)
        await server.open()
        try:
            async with grpc.aio.insecure_channel(server.address) as channel:
                yield leader, server, Client(channel, {"scalerAddress": server.address, **metadata})
        finally:
            await server.close()


async def test_metric_is_the_number_of_nodes_with_a_target_of_one_for_each():
    """P10: both the float and the older whole number are filled."""
    async with serving(env=ENV) as (leader, _, client):
        await leader.write(desired=7)
        [spec] = (await client.call("GetMetricSpec")(client.reference)).metricSpecs
        assert ("evenlane-desired-nodes", 1, 1.0) == (spec.metricName, spec.targetSize, spec.targetSizeFloat)
        [value] = (await client.metrics(spec.metricName)).metricValues
        assert ("evenlane-desired-nodes", 7, 7.0) == (value.metricName, value.metricValue, value.metricValueFloat)
        assert (await client.call("IsActive")(client.reference)).result


async def test_stream_answers_at_once_and_with_each_change():
    """P10: for a trigger of type external-push."""
    async with serving() as (leader, _, client):
        await leader.write(desired=7)
        stream = client.call("StreamIsActive")(client.reference)
        assert (await stream.read()).result
        await leader.write(desired=7)
        await leader.write(desired=8)
        assert (await stream.read()).result
        stream.cancel()


async def test_without_a_recommendation_keda_is_given_none():
    """P10: so the number of replicas stays, or the ScaledObject's fallback counts."""
    async with serving() as (_, _, client):
        answer = ("UNAVAILABLE", "no leader has recommended a number of nodes yet")
        assert answer == await client.refusal(client.metrics())
        assert answer == await client.refusal(client.call("IsActive")(client.reference))


async def test_conflict_of_settings_is_said():
    """P10."""
    async with serving() as (leader, _, client):
        await leader.write(mode="leader", desired=5)
        code, text = await client.refusal(client.metrics())
        assert "FAILED_PRECONDITION" == code
        assert "the setting scaling is keda here, and leader on node a, which leads: set the same on all nodes" == text


async def test_trigger_of_another_environment_and_unknown_metric_are_refused():
    """P10, E1."""
    async with serving(env="sandbox") as (leader, _, client):
        await leader.write(desired=5)
        assert await client.refusal(client.metrics()) == (
            "INVALID_ARGUMENT", "this node belongs to environment 'online', and the trigger's metadata to 'sandbox'",
        )  # fmt: skip
    async with serving() as (leader, _, client):
        await leader.write(desired=5)
        assert await client.refusal(client.metrics("backlog")) == (
            "INVALID_ARGUMENT", "'backlog' is not a metric of Evenlane: there is evenlane-desired-nodes",
        )  # fmt: skip


async def test_used_port_is_one_sentence():
    """P10."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        server = KedaServer(address, ENV, Leader().recommendations)
        with pytest.raises(PortUnavailable) as caught:
            await server.open()
        assert f"scaling_listen: can't listen on {address} for KEDA: is the port used?" == str(caught.value)
        await server.close()


async def test_nodes_of_a_machine_share_the_port():
    """P10: `--processes N` has one configuration. When one ends, the others answer."""
    async with serving() as (leader, first, _):
        await leader.write(desired=4)
        second = KedaServer(first.address, ENV, leader.recommendations)
        await second.open()
        await first.close()
        async with grpc.aio.insecure_channel(second.address) as channel:
            client = Client(channel, {"scalerAddress": second.address})
            [value] = (await client.metrics()).metricValues
        await second.close()
    assert (4, first.address) == (value.metricValue, second.address)


async def test_server_closes_while_a_stream_is_open():
    """P10: a node that ends doesn't wait for KEDA."""
    async with serving() as (leader, server, client):
        await leader.write(desired=2)
        stream = client.call("StreamIsActive")(client.reference)
        assert (await stream.read()).result
        await server.close()
        await until(stream.done)


def test_messages_are_those_of_the_interface_on_the_wire():
    """P10: numbers and types as in KEDA's documentation: 1 a text, 2 a whole number, 3 a double."""
    value = CLASSES["MetricValue"](metricName="m", metricValue=3, metricValueFloat=3.0)
    assert b"\x0a\x01m\x10\x03\x19" + b"\x00\x00\x00\x00\x00\x00\x08\x40" == value.SerializeToString()
    reference = CLASSES["ScaledObjectRef"](name="n", namespace="p", scalerMetadata={"k": "v"})
    assert b"\x0a\x01n\x12\x01p\x1a\x06\x0a\x01k\x12\x01v" == reference.SerializeToString()
    assert "externalscaler.ExternalScaler" == SERVICE
