"""A process that puts a load by the clock on the wall, as producers do: not in the node's own process, where a burst
would take the event loop from the handlers. This side starts it, tells it when to begin, and reads what it did.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from array import array
from typing import TYPE_CHECKING, Self

import msgspec

from evenlane.engine.cluster.cluster_config import ClusterConfig  # noqa: TC001 - msgspec reads the annotations
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.scenarios.alongside import alongside
from evenlane.engine.proof.scenarios.arrivals import SECOND
from evenlane.engine.runtime.embedded.child import GUARD

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from evenlane.engine.proof.scenarios.load import Load

SIZE = struct.Struct("<Q")  # before each record: its bytes
PROGRAM = "evenlane.engine.proof.scenarios.putter_process"


class Order(msgspec.Struct):
    """What the process is to put. The columns are those of the load, `projects` and `spreads` of its tenants."""

    url: str
    env: str
    facts: ClusterConfig
    projects: list[str]
    spreads: list[int]
    at: bytes
    tenant: bytes
    group: bytes
    band: bytes
    service: bytes = b""


class Told(msgspec.Struct):
    """What it says: once that it is ready, then what it did. `sent` is a column of instants, ns since the origin."""

    sent: bytes = b""
    error: str = ""


class Putter:
    """Inside `async with` the process is connected and waits for its start. A message's body is its number in the load,
    `with_service` followed by how long its handler is to take, in ns. Raises EvenlaneError.
    """

    def __init__(self, url: str, env: str, load: Load, *, with_service: bool = False) -> None:
        columns = (column.tobytes() for column in (load.at, load.tenant, load.group, load.band))
        projects = [each.name for each in load.tenants]
        spreads = [each.topic.spread for each in load.tenants]
        service = load.service.tobytes() if with_service else b""
        at, of, group, band = columns
        self._order = Order(url, env, load.facts, projects, spreads, at, of, group, band, service)
        self._lasts_s = load.until / SECOND
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        guard = (sys.executable, "-I", "-S", str(GUARD), str(os.getpid()))  # it dies with this process
        # The same modules as here, whatever lies in the current folder.
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = await asyncio.create_subprocess_exec(
            *guard, sys.executable, "-P", "-m", PROGRAM,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environ, start_new_session=True,
        )  # fmt: skip
        try:
            await self._say(msgspec.msgpack.encode(self._order))
            await self._told()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def put(self, origin: int) -> array[int]:
        """Put the load, whose first instant is `origin` (ns of `now_ns`); when each message was sent off, ns since
        then. Raises EvenlaneError.
        """
        await self._say(SIZE.pack(origin))
        return array("q", (await self._told()).sent)

    def putting(self, origin: int) -> AbstractAsyncContextManager[None]:
        """Put the load as long as the block runs. Raises EvenlaneError, as well if the load ends before the block."""
        return alongside(self._outlasting(origin))

    async def _outlasting(self, origin: int) -> None:
        await self.put(origin)
        raise EvenlaneError(f"the scenario broke off: it was slower than its load of {self._lasts_s:g} s")

    async def _say(self, record: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(SIZE.pack(len(record)) + record)
        await self._process.stdin.drain()

    async def _told(self) -> Told:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            (size,) = SIZE.unpack(await self._process.stdout.readexactly(SIZE.size))
            told = msgspec.msgpack.decode(await self._process.stdout.readexactly(size), type=Told)
        except asyncio.IncompleteReadError:
            told = Told(error="the process that puts has ended")
        if told.error:
            raise EvenlaneError(f"the scenario broke off: {told.error}")
        return told

    async def _end(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
