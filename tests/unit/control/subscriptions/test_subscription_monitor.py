"""Counts of running nodes: the leader counts those of each subscription (K10)."""

import asyncio

from evenlane.engine.base import names
from evenlane.engine.cluster.subscriptions.registry import Subscription
from evenlane.engine.cluster.subscriptions.registry_watch import RegistryWatch
from evenlane.engine.control.subscriptions.subscription_monitor import RunningNodes, SubscriptionMonitor
from tests.support.subscription_world import CLUSTER, ENV
from tests.support.until import until

ACTIVE, DELETING = Subscription(state="active"), Subscription(state="deleting")


async def test_leader_counts_the_nodes_of_all_subscriptions(world):
    """K10: and their states, also after a change of the registry."""
    leading = asyncio.Event()
    leading.set()
    registry = RegistryWatch(world.etcd, ENV)
    await registry.start()
    monitor = SubscriptionMonitor(world.etcd, ENV, registry, leading)
    monitor.open()
    try:
        for node in ("b", "c"):
            await world.etcd.put(names.key(CLUSTER, "nodes", node), b"{}")
        await world.etcd.put(names.key(ENV, "nodes", "a"), b"{}")
        await world.register(audit=ACTIVE, billing=DELETING)
        counted = (
            RunningNodes("", "active", 1),
            RunningNodes("audit", "active", 2),
            RunningNodes("billing", "deleting", 0),
        )
        await until(lambda: monitor.current == counted)
        await world.register(audit=ACTIVE)
        await until(lambda: monitor.current == counted[:2])
        leading.clear()
        assert () == monitor.current
    finally:
        await monitor.close()
        await registry.close()
