"""Each of two subscriptions is stuck at one tenant's messages, on a real server: what both have settled goes (K10)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId, lane_subject
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.subscriptions.registry import RegistryView, Subscription
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.handlers.routes import Route, RouteTable
from evenlane.engine.node.node import Node
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.quota.topics.topic import complete, parse_spec
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.runtime.embedded.nats import NatsServer

pytestmark = pytest.mark.real

CONFIG = ClusterConfig(partitions=2, max_group_qps=1_000_000)
LANES = [LaneId(kind, number) for kind in names.SHARED_KINDS for number in range(CONFIG.partitions)]
TOPIC = complete(parse_spec(b'{"qps": 1000000, "groups": 2, "spread": 2}'), CONFIG)
VIEW = RegistryView(7, {"audit": Subscription(state="active")})
TENANTS = ("x", "y", "z")
WINDOW = 4_000


class Owner:
    """A node of one subscription, which has handlers for these tenants only, and so is stuck at the others' messages.
    `handled` are the messages of all its lives.
    """

    def __init__(self, world: HeldWorld, cluster: str, *tenants: str) -> None:
        self._world, self.cluster, self.tenants = world, cluster, tenants
        self.handled: list[str] = []

    async def start(self) -> None:
        self._stack = AsyncExitStack()
        store = await self._world.store(self.cluster)
        self._stack.push_async_callback(store.close)
        await store.prepare(LANES)
        routes = RouteTable([Route(each, Handler.of(self._handle)) for each in self.tenants])
        node = Node(store, CONFIG, routes, lambda _: TOPIC, cluster=self.cluster)
        await node.start()
        self._stack.push_async_callback(node.stop, 5)
        await node.registry.begin()
        node.registry.adopt(VIEW)
        await node.take_over(range(CONFIG.partitions), self._world.next_epoch())

    async def _handle(self, message: Message) -> None:
        self.handled.append(message.id)

    async def stop(self) -> None:
        await self._stack.aclose()


class HeldWorld:
    def __init__(self, server: NatsServer, env: str) -> None:
        self.env, self._url, self._epoch = env, server.url, 0

    async def store(self, cluster: str) -> JetStreamStore:
        store = JetStreamStore(NatsOptions((self._url,)), cluster)
        await store.open()
        return store

    def next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    async def put(self, store: JetStreamStore, count: int, tenants: Sequence[str] = TENANTS) -> None:
        waiting = []
        for number in range(count):
            tenant = tenants[number % len(tenants)]
            head = h.encode({h.ID: f"{tenant}:{tenant}-{number}"})
            waiting.append(store.put(lane_subject(self.env, number % 2, tenant, number % 2, "mid"), head, b"x"))
            if len(waiting) == WINDOW:
                await asyncio.gather(*waiting)
                waiting.clear()
        await asyncio.gather(*waiting)


async def sizes(store: JetStreamStore) -> int:
    return sum([(await store.size(lane)).messages for lane in LANES])


async def log_sizes(store: JetStreamStore, cluster: str) -> list[int]:
    return [sum(map(len, await store.read_records(lane, cluster))) for lane in LANES]


@pytest.mark.parametrize("count", [6_000, pytest.param(200_000, marks=pytest.mark.full)])
async def test_only_what_both_have_settled_goes(nats_server: NatsServer, count: int) -> None:
    """K10, L: each message of the tenants at which one of them is stuck stays, through takeovers; the settle logs stay
    below 1 MiB a lane. Then each handles the rest, once.
    """
    world = HeldWorld(nats_server, f"held{count}")
    store, audit_store = await world.store(world.env), await world.store(f"{world.env}_audit")
    await store.prepare(LANES)
    await audit_store.create_own_streams()
    first, audit = Owner(world, world.env, "y", "z"), Owner(world, f"{world.env}_audit", "x", "z")
    of_each = count // len(TENANTS)
    try:
        for owner in (first, audit):
            await owner.start()
        await world.put(store, count)
        await until(lambda: min(len(first.handled), len(audit.handled)) >= 2 * of_each - 1, 300)
        for owner in (first, audit):
            await owner.stop()
            await owner.start()
        held = count - of_each  # all of x and y; z goes
        await until(lambda: _is(store, held), 300, "the tenant that neither is stuck at to go")
        assert max(await log_sizes(store, first.cluster) + await log_sizes(store, audit.cluster)) < 1 << 20
        for owner in (first, audit):
            await owner.stop()
            owner.tenants = TENANTS
            await owner.start()
        await until(lambda: _is(store, 0), 300, "all to go")
        for owner in (first, audit):
            assert len(owner.handled) == len(set(owner.handled)) == count
    finally:
        for owner in (first, audit):
            await owner.stop()
        for each in (store, audit_store):
            await each.close()


async def _is(store: JetStreamStore, count: int) -> bool:
    return await sizes(store) == count


async def test_takeover_begins_behind_what_another_subscription_holds(nats_server: NatsServer) -> None:
    """K10, E5, L: `audit` is away, and a few messages of a tenant without a handler pin the watermark. The next owner
    reads these alone. In the end, each message was handled once.
    """
    world = HeldWorld(nats_server, "held-away")
    store, audit_store = await world.store(world.env), await world.store(f"{world.env}_audit")
    await store.prepare(LANES)
    await audit_store.create_own_streams()
    first = Owner(world, world.env, "y")
    try:
        await first.start()
        await world.put(store, 10, "x")
        await world.put(store, 3_000, "y")
        await until(lambda: len(first.handled) == 3_000, 60)
        await first.stop()
        with capture_logs() as logs:
            await first.start()
        read = [line for line in logs if line["event"] == "read between settled messages"]
        assert [(5, 1_505), (5, 1_505)] == [(line["messages"], line["sequences"]) for line in read]
        await first.stop()
        first.tenants = TENANTS
        await first.start()
        await until(lambda: len(first.handled) == 3_010, 60)
        assert len(set(first.handled)) == 3_010
        assert 3_010 == await sizes(store)
    finally:
        await first.stop()
        for each in (store, audit_store):
            await each.close()
