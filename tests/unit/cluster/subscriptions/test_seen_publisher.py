"""A node says by which registry of subscriptions it goes, once that is so."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from structlog.testing import capture_logs

from evenlane.engine.base import names
from evenlane.engine.cluster.subscriptions.registry import RegistryRecord, RegistryView, registry_key
from evenlane.engine.cluster.subscriptions.registry_watch import RegistryWatch
from evenlane.engine.cluster.subscriptions.seen_publisher import SeenPublisher
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.membership.records import SeenRecord, decode, encode
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY, SEEN = registry_key("online"), names.key("online", "seen", "a")
RECORD = encode(RegistryRecord())
UNPUBLISHED = "not published yet which subscriptions the node follows"


class FakeNode:
    """`ready` is set while an adoption completes at once."""

    def __init__(self) -> None:
        self.adopted: list[int] = []
        self.ready = asyncio.Event()
        self.ready.set()
        self.has_unlisted = False
        self.completed = 0

    def adopt(self, view: RegistryView) -> None:
        self.adopted.append(view.revision)

    async def complete(self) -> None:
        await self.ready.wait()
        self.completed += 1


class World:
    def __init__(self) -> None:
        self.etcd, self.node = MemoryCoordination(), FakeNode()
        self.client = self.etcd.peer()
        self.lease = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[World]:
        self.lease = await self.client.grant(60)
        registry = RegistryWatch(self.client, "online")
        await registry.start()
        publisher = SeenPublisher(self.client, "online", "a", self.lease, registry, self.node)
        publisher.open()
        yield self
        await publisher.close()
        await registry.close()
        await self.client.close()
        await self.etcd.close()

    async def seen(self) -> int:
        item = await self.etcd.get(SEEN)
        if item is None:
            return 0
        assert item.lease == self.lease
        return decode(SeenRecord, SEEN, item.value).revision


async def test_nothing_is_written_without_subscriptions() -> None:
    """K10: an environment without named subscriptions has the keys of before."""
    async with World().open() as world:
        assert world.node.adopted == [0]
        await world.etcd.put("/evenlane/online/other", b"")
        assert 0 == await world.seen()


async def test_node_says_what_it_has_seen_once_that_is_carried_out() -> None:
    """K10: a creation waits for that. The node follows the new registry at once."""
    async with World().open() as world:
        world.node.ready.clear()
        revision = await world.etcd.put(KEY, RECORD)
        await until(lambda: world.node.adopted == [0, revision])
        assert 0 == await world.seen()
        world.node.ready.set()
        await until(lambda: _is(world, revision))
        newer = await world.etcd.put(KEY, RECORD)
        await until(lambda: _is(world, newer))
        await world.etcd.delete(KEY)
        await until(lambda: _is(world, 0))


async def test_node_that_starts_later_says_so_at_once() -> None:
    """K10: it has owned nothing under an older registry."""
    world = World()
    revision = await world.etcd.put(KEY, RECORD)
    async with world.open():
        assert world.node.adopted == [revision]
        await until(lambda: _is(world, revision))


async def test_silence_of_etcd_is_waited_out() -> None:
    """F2, K10: until etcd answers again, the creation waits."""
    async with World().open() as world:
        world.node.ready.clear()
        revision = await world.etcd.put(KEY, RECORD)
        await until(lambda: world.node.adopted == [0, revision])
        with capture_logs() as logs:
            world.client.cut()
            world.node.ready.set()
            await until(lambda: any(each["event"] == UNPUBLISHED for each in logs))
            assert 0 == await world.seen()
            world.client.heal()
            await until(lambda: _is(world, revision))


async def _is(world: World, revision: int) -> bool:
    return await world.seen() == revision
