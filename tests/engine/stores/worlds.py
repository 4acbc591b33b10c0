"""Where the contract of the store port is tried: what each implementation needs beside the port itself."""

import itertools
from typing import Protocol

from engine import names
from engine.names import LaneId
from engine.ports import Store
from engine.servers import NatsServer
from engine.stores.jetstream import JetStreamStore
from engine.stores.jetstream.connection import NatsOptions
from engine.stores.memory import MemoryServer, MemoryStore
from tests.wait import until

LANE = LaneId("lanes", 3)
OTHER = LaneId("lanes", 4)
LATER = LaneId("later", 3)

_fresh = itertools.count()


class World(Protocol):
    """Two connections to one store, in which the streams of LANE, OTHER and LATER are prepared."""

    env: str
    store: Store
    second: Store

    async def outage(self) -> None:
        """The store goes without warning (kill -9); returns when both connections know."""

    async def back(self) -> None:
        """It is there again, with all it had acknowledged; returns when both connections know."""

    async def replace(self, lane: LaneId) -> None:
        """Somebody deletes the lane's stream and makes it anew."""

    async def close(self) -> None: ...


class MemoryWorld:
    def __init__(self, **options) -> None:
        self.env = f"t{next(_fresh)}"
        self.server = MemoryServer(**options)
        self.store = MemoryStore(self.server, self.env)
        self.second = MemoryStore(self.server, self.env)

    async def open(self) -> "MemoryWorld":
        for store in (self.store, self.second):
            await store.open()
        await self.store.prepare([LANE, OTHER, LATER])
        return self

    async def outage(self) -> None:
        self.server.disconnect()

    async def back(self) -> None:
        self.server.reconnect()

    async def replace(self, lane: LaneId) -> None:
        self.server.replace(self.env, lane)

    async def close(self) -> None:
        await self.store.close()
        await self.second.close()


class JetStreamWorld:
    def __init__(self, server: NatsServer, **options) -> None:
        self.env = f"t{next(_fresh)}"
        self.server = server
        self._options = options
        self.store, self.second = self.another(), self.another()

    def another(self, **options) -> JetStreamStore:
        return JetStreamStore(NatsOptions(servers=(self.server.url,)), self.env, **(self._options | options))

    async def open(self) -> "JetStreamWorld":
        for store in (self.store, self.second):
            await store.open()
        await self.store.prepare([LANE, OTHER, LATER])
        return self

    async def outage(self) -> None:
        stores = {store: store.incarnation for store in (self.store, self.second)}
        await self.server.kill()
        await until(lambda: all(store.incarnation > old for store, old in stores.items()), what="notice of it")

    async def back(self) -> None:
        stores = {store: store.incarnation for store in (self.store, self.second)}
        await self.server.start()
        await until(
            lambda: all(store.connected and store.incarnation > old for store, old in stores.items()),
            what="both connections to be back",
        )

    async def api(self, verb: str, request: object = None) -> dict:
        return await self.second._connection.api(verb, request)

    async def replace(self, lane: LaneId) -> None:
        await self.api(f"STREAM.DELETE.{names.stream(self.env, lane)}")
        await self.second.prepare([lane])

    async def close(self) -> None:
        if not self.server.running:
            await self.back()
        for stream in (await self.api("STREAM.NAMES"))["streams"] or ():
            await self.api(f"STREAM.DELETE.{stream}")
        await self.store.close()
        await self.second.close()
