"""Harnesses for the contract tests of the coordination port: the operations that tests need besides the port."""

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Protocol

from evenlane.engine.runtime.embedded.etcd import EtcdServer, request
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Coordination, Event, Listing, Watch

_fresh = itertools.count()


class CoordinationHarness(Protocol):
    prefix: str  # no key is under it yet

    def client(self) -> Coordination: ...

    async def pass_time(self, seconds: float) -> None: ...

    async def compact(self, revision: int) -> None: ...

    async def close(self) -> None: ...


@dataclass
class MemoryHarness:
    prefix: str = "/test/"
    _first: MemoryCoordination = field(default_factory=MemoryCoordination)
    _clients: list[MemoryCoordination] = field(default_factory=list)

    def client(self) -> MemoryCoordination:
        self._clients.append(self._first.peer())
        return self._clients[-1]

    async def pass_time(self, seconds: float) -> None:
        self._first.advance(seconds)

    async def compact(self, revision: int) -> None:
        self._first.compact(revision)

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


@dataclass
class EtcdHarness:
    server: EtcdServer
    prefix: str = field(default_factory=lambda: f"/test/{next(_fresh)}/")
    _clients: list[EtcdCoordination] = field(default_factory=list)

    def client(self) -> EtcdCoordination:
        self._clients.append(EtcdCoordination([self.server.endpoint]))
        return self._clients[-1]

    async def pass_time(self, seconds: float) -> None:
        """Do nothing: time passes by itself."""

    async def compact(self, revision: int) -> None:
        answer = await request(self.server.port, "POST", "/v3/kv/compaction", {"revision": str(revision)})
        assert "error" not in answer, answer

    async def close(self) -> None:
        for client in self._clients:
            await client.close()


async def next_update(watch: Watch, timeout: float = 30.0) -> Listing | Event:
    """The next update of the watch."""
    async with asyncio.timeout(timeout):
        return await anext(watch)


async def listing(watch: Watch, timeout: float = 30.0) -> Listing:
    """The next listing. Events before it are skipped."""
    async with asyncio.timeout(timeout):
        async for each in watch:
            if isinstance(each, Listing):
                return each
    raise AssertionError("the watch has ended")


def short(each: Listing | Event) -> tuple[str, ...]:
    """An event as (kind, last part of the key, value); a listing as its last parts of keys."""
    if isinstance(each, Listing):
        return ("listing", *(item.key.rpartition("/")[2] for item in each.items))
    return (each.kind, each.item.key.rpartition("/")[2], each.item.value.decode())
