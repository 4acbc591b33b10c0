"""Nodes of several subscriptions on the store in memory."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from evenlane.engine.cluster.subscriptions.registry import RegistryView, Subscription
from tests.support.node.world import CLUSTER_CONFIG, LANES, World, is_durable
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from evenlane.engine.node.node import Node
    from evenlane.engine.store.memory.store import MemoryStore

AUDIT = "online_audit"
VIEW = RegistryView(7, {"audit": Subscription(state="active")})


async def start(
    world: World, handler: Any = None, cluster: str = "online", view: RegistryView = VIEW, **options: Any
) -> Node:
    """A node of this cluster that owns all partitions, and follows this registry."""
    store = world.new_store(cluster)
    await store.open()
    if cluster != "online":
        await store.create_own_streams()
    await store.close()
    node = await world.idle_node(handler, cluster=cluster, **options)
    await node.store.prepare(LANES)
    await node.registry.begin()
    node.registry.adopt(view)
    await node.take_over(range(CLUSTER_CONFIG.partitions), world.next_epoch())
    return node


@asynccontextmanager
async def five_handled() -> AsyncIterator[tuple[World, Node, MemoryStore]]:
    """Five messages that the unnamed subscription has handled, its node, and the store of one that has no nodes."""
    async with World() as world:
        audit = world.new_store(AUDIT)
        await audit.open()
        await audit.create_own_streams()
        node = await start(world)
        await world.put_many(5)
        await until(lambda: len(world.handled) == 5 and is_durable(node))
        yield world, node, audit
        await audit.close()
