"""The overview of two nodes on real servers, one of which is suspended."""

import signal
from contextlib import nullcontext
from itertools import pairwise

import pytest

from evenlane.engine.admin.history.client import HistoryClient
from evenlane.engine.cli.top.source import connect_source
from evenlane.engine.cluster import connections
from evenlane.engine.producer.put import Put
from tests.ledger.world import ProcessWorld
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full]


async def test_overview_combines_two_nodes(tmp_path):
    """Backlogs of both nodes, paused and active topics, owners of partitions; a silent node becomes a note."""
    async with ProcessWorld(tmp_path, lease_ttl=60) as world, connect_source(world.settings, "") as source:
        first = await world.node()  # its lease lasts: it keeps its partitions while it is suspended
        await world.node(name="node-b")
        await world.topics("acme", state="paused", groups=8, spread=8)
        await world.topics("bolt")

        async def shared():
            return [4, 4] == [len(node["partitions"]) for node in (await source.overview())["nodes"]]

        await until(shared)
        producer = await world.producer()
        await world.put(producer, [Put("acme", b"x") for _ in range(40)] + [Put("bolt", b"x") for _ in range(3)])

        async def settled():
            reported = await source.overview()
            known = reported["totals"]["backlog"] == 40 and reported["totals"]["arriving"] is not None
            return reported if known and len(reported["tenants"]) == 2 else None

        reported = await until(settled)
        _tenants(reported)
        _nodes(reported)
        await _history(world)
        first.send(signal.SIGSTOP)
        after = await source.overview()
        first.send(signal.SIGCONT)
        assert [(False, None), (True, reported["nodes"][1]["backlog"])] == [
            (node["answered"], node["backlog"]) for node in after["nodes"]
        ]
        assert ["node node-a did not answer: its figures are missing"] == after["notes"]


async def _history(world):
    """Both nodes remember the backlog while nobody looked; it adds up to what was put, second by second."""
    bus = connections.bus(world.settings, "a test")
    await bus.open()
    client = HistoryClient(world.etcd, "online", lambda: nullcontext(bus))

    async def remembered():
        looks = [look for look in await client.history() if look.totals[0] == 40]
        return looks if len(looks) >= 3 else None

    looks = await until(remembered)
    assert {40} == {look.tenants["acme"][0] for look in looks}
    assert [1_000_000_000] * (len(looks) - 1) == [after.at - before.at for before, after in pairwise(looks)]
    await bus.close()


def _tenants(reported):
    acme, bolt = reported["tenants"]
    assert ("acme", "paused", "paused", 100_000.0) == (acme["project"], acme["state"], acme["reason"], acme["qps"])
    assert [0, 40, 0] == [part["backlog"] for part in acme["priorities"]]
    assert acme["priorities"][1]["never_gone"]
    assert acme["oldest_seconds"] > 0
    assert 100_000.0 == pytest.approx(acme["quota_now"])  # of both nodes together
    assert ("bolt", "active", 0, None) == (bolt["project"], bolt["state"], bolt["backlog"], bolt["oldest_seconds"])


def _nodes(reported):
    nodes = reported["nodes"]
    assert ["node-a", "node-b"] == [node["id"] for node in nodes]
    assert [*range(8)] == sorted(partition for node in nodes for partition in node["partitions"])
    assert 1 == sum(node["leader"] for node in nodes)
    assert (40, True) == (sum(node["backlog"] for node in nodes), all(node["backlog"] for node in nodes))
    assert all(node["answered"] and node["slots"] and 0 < node["lease_seconds"] <= 60 for node in nodes)
    assert [] == reported["notes"] == reported["unowned"]
