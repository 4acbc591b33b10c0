"""Which messages of the shared streams a node of a named subscription handles, as the registry says."""

from typing import Any

from evenlane.engine.cluster.subscriptions.registry import RegistryRecord, Subscription, registry_key
from evenlane.engine.producer.put import Put
from evenlane.engine.store.memory.store import MemoryStore
from evenlane.ring.membership.records import encode
from tests.days.cluster import VirtualCluster
from tests.simulation.loop import SECOND
from tests.support.until import until
from tests.support.virtual_time import run_virtually

_EPOCH = 1_790_000_000 * SECOND


async def _subscribe(cluster: VirtualCluster, **fields: Any) -> None:
    """Put a subscription `audit` into the registry, with its streams."""
    record = RegistryRecord(subscriptions={"audit": Subscription(state="active", **fields)})
    await cluster.coordination().put(registry_key("online"), encode(record))
    store = MemoryStore(cluster.server, "online_audit")
    await store.open()
    await store.create_own_streams()
    await store.close()


def test_node_handles_the_projects_of_its_subscription() -> None:
    """K10: the registry's patterns decide; the unnamed subscription handles all."""
    handled: dict[str, list[str]] = {}

    async def main(loop: Any) -> None:
        async with VirtualCluster(loop, _EPOCH) as cluster:
            await _subscribe(cluster, since=_EPOCH, projects=["ac*"])
            nodes = [await cluster.start("n1"), await cluster.start("a1", subscription="audit")]
            await cluster.topic("acme")
            await cluster.topic("bill")
            producer = await cluster.producer()
            await cluster.put(producer, [Put(project, b"x") for project in ("acme", "bill")])
            audit = nodes[1].pid

            def handled_by(pid: int) -> list[str]:
                return [p for p in ("acme", "bill") for each in cluster.of(p) if (each.pid, each.what) == (pid, "ok")]

            await until(lambda: handled_by(nodes[0].pid) == ["acme", "bill"] and "acme" in handled_by(audit))
            await until(lambda: not any(len(cluster.server.messages(f"LANES_online_{p}")) for p in range(8)))
            handled.update({node.name: handled_by(node.pid) for node in nodes})

    run_virtually(main)
    assert handled == {"n1": ["acme", "bill"], "a1": ["acme"]}
