"""Harnesses of the store contract: what tests need of an implementation in addition to the port."""

import asyncio
import itertools
import resource
from contextlib import asynccontextmanager
from typing import Protocol

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Store
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.until import until

LANE = LaneId("lanes", 3)
OTHER = LaneId("lanes", 4)
LATER = LaneId("later", 3)
AGAIN = LaneId("again", 3)

_UNLIMITED = resource.RLIM_INFINITY

_fresh = itertools.count()


def limit_files(server: NatsServer, size: int = _UNLIMITED) -> None:
    """Limit each file of the running server to `size` bytes: a full disk, without mounting one."""
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, _UNLIMITED))


class StoreHarness(Protocol):
    """Two connections to one store, in which the streams of LANE, OTHER and LATER are prepared."""

    env: str
    store: Store
    second: Store

    def another_of(self, cluster: str) -> Store:
        """A connection for another cluster, not open yet."""

    async def outage(self) -> None:
        """End the store without warning (kill -9); returns when both connections have noticed."""

    async def back(self) -> None:
        """Start it again, with all that it had acknowledged; returns when both connections are back."""

    async def replace(self, lane: LaneId) -> None:
        """Delete the lane's stream and create it again."""

    def fill_disk(self, lane: LaneId) -> None:
        """Leave the lane's stream no room for a message of 200 kB, and others room for small ones."""

    async def make_room(self) -> None:
        """Undo `fill_disk`, with the restart that the store needs; returns when both connections are back."""

    async def close(self) -> None: ...


class MemoryStoreHarness:
    def __init__(self, **options) -> None:
        self.env = f"t{next(_fresh)}"
        self.server = MemoryServer(**options)
        self.store = MemoryStore(self.server, self.env)
        self.second = MemoryStore(self.server, self.env)

    async def open(self) -> "MemoryStoreHarness":
        for store in (self.store, self.second):
            await store.open()
        await self.store.prepare([LANE, OTHER, LATER])
        return self

    def another_of(self, cluster: str) -> MemoryStore:
        return MemoryStore(self.server, cluster)

    async def outage(self) -> None:
        self.server.disconnect()

    async def back(self) -> None:
        self.server.reconnect()

    async def replace(self, lane: LaneId) -> None:
        self.server.replace(self.env, lane)

    def fill_disk(self, lane: LaneId) -> None:
        self.server.fill_disk(names.stream(self.env, lane))

    async def make_room(self) -> None:
        self.server.make_room()
        await self.outage()
        await self.back()

    async def close(self) -> None:
        await self.store.close()
        await self.second.close()


class JetStreamHarness:
    def __init__(self, server: NatsServer, **options) -> None:
        self.env = f"t{next(_fresh)}"
        self.server = server
        self._options = options
        self.store, self.second = self.another(), self.another()

    def another(self, **options) -> JetStreamStore:
        return self.another_of(self.env, **options)

    def another_of(self, cluster: str, **options) -> JetStreamStore:
        return JetStreamStore(NatsOptions(servers=(self.server.url,)), cluster, **(self._options | options))

    async def open(self) -> "JetStreamHarness":
        for store in (self.store, self.second):
            await store.open()
        await self.store.prepare([LANE, OTHER, LATER])
        return self

    async def outage(self) -> None:
        stores = {store: store.incarnation for store in (self.store, self.second)}
        await self.server.kill()
        await until(
            lambda: all(store.incarnation > old for store, old in stores.items()), what="both connections to be lost"
        )

    async def back(self) -> None:
        stores = {store: store.incarnation for store in (self.store, self.second)}
        await self.server.start()
        await until(
            lambda: all(store.is_connected and store.incarnation > old for store, old in stores.items()),
            what="both connections to be back",
        )

    @asynccontextmanager
    async def connected(self):
        """A connection of the test's own."""
        connection = Connection(NatsOptions(servers=(self.server.url,)), "test")
        await connection.open()
        try:
            yield connection
        finally:
            await connection.close()

    async def api(self, verb: str, request: object = None) -> dict:
        async with self.connected() as connection:
            return await connection.api(verb, request)

    async def replace(self, lane: LaneId) -> None:
        await self.api(f"STREAM.DELETE.{names.stream(self.env, lane)}")
        await self.second.prepare([lane])

    def fill_disk(self, _: LaneId) -> None:
        limit_files(self.server, 64 << 10)

    async def make_room(self) -> None:
        await self.outage()
        await self.back()

    async def close(self) -> None:
        if not self.server.is_running:
            await self.back()
        async with self.connected() as connection:
            found = (await connection.api("STREAM.NAMES"))["streams"] or ()
            await asyncio.gather(*(connection.api(f"STREAM.DELETE.{stream}") for stream in found))
        await self.disconnect()

    async def disconnect(self) -> None:
        """Close the connections, in any state of the server."""
        await self.store.close()
        await self.second.close()
