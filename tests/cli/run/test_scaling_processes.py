"""`evenlane run --processes N` with scaling by KEDA, with real nodes on real servers."""

import grpc
import pytest

from evenlane.engine.runtime.embedded.ports import free_port
from evenlane.engine.scaler.keda.protos import CLASSES, METHODS, SERVICE
from tests.support.until import until

pytestmark = pytest.mark.real


async def test_processes_share_the_port_for_keda(real):
    """P10: each of them serves it, and all answer the same."""
    address = f"127.0.0.1:{free_port()}"
    one = await real(2, partitions=8, scaling="keda", scaling_listen=address, scaling_interval="1s", scaling_min=3)
    assert (await one.line()).startswith("ready node=n "), one.stderr_text()
    assert {"n-0", "n-1"} == set(one.nodes())
    listening = [
        found.laddr.port
        for node in one.nodes().values()
        for found in node.net_connections()
        if found.status == "LISTEN"
    ]
    assert 2 == listening.count(int(address.rpartition(":")[2]))
    method = METHODS["GetMetrics"]
    for _ in range(8):  # each connection goes to one of them
        async with grpc.aio.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            ask = channel.unary_unary(
                f"/{SERVICE}/GetMetrics", method.request.SerializeToString, method.response.FromString
            )  # fmt: skip
            [value] = await until(lambda ask=ask: _answer(ask))
            assert 3 == value.metricValue
    one.process.terminate()
    assert 0 == await one.ended()


async def _answer(ask):
    try:
        return (await ask(CLASSES["GetMetricsRequest"](metricName="evenlane-desired-nodes"))).metricValues
    except grpc.aio.AioRpcError:  # before the first look
        return None
