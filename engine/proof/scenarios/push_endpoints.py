"""The customers' endpoints of `push`, in processes of their own: this side starts them and tells them when to begin.

Each customer's is a port of its own. They answer after `service` seconds, unless a phase of their plan says otherwise,
whose times are seconds since the load's first instant.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Self

import msgspec

from evenlane.engine.errors import EvenlaneError
from evenlane.engine.runtime.embedded.child import GUARD

if TYPE_CHECKING:
    from types import TracebackType

PROGRAM = "evenlane.engine.proof.scenarios.push_server"


class Phase(msgspec.Struct, frozen=True):
    """From `start` until `end` (s) they are `kind`: slow, silent, dead, flapping or huge."""

    kind: str
    start: float
    end: float


class Plan(msgspec.Struct, frozen=True):
    """Of `count` endpoints. Times in s."""

    count: int
    service: float
    slow: float = 0.0  # in a slow phase
    phases: tuple[Phase, ...] = ()


class Endpoints:
    """Inside `async with` they listen, on `ports`. Raises EvenlaneError."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._process: asyncio.subprocess.Process | None = None
        self.ports: list[int] = []

    async def __aenter__(self) -> Self:
        guard = (sys.executable, "-I", "-S", str(GUARD), str(os.getpid()))  # it dies with this process
        # The same modules as here, whatever lies in the current folder.
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = await asyncio.create_subprocess_exec(
            *guard, sys.executable, "-P", "-m", PROGRAM,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, env=environ, start_new_session=True,
        )  # fmt: skip
        try:
            self._say(msgspec.json.encode(self._plan))
            self.ports = await self._told()
        except BaseException:
            await self._end()
            raise
        return self

    def begin(self, origin: int) -> None:
        """The load's first instant is `origin`, ns of `now_ns`."""
        self._say(msgspec.json.encode(origin))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    def _say(self, line: bytes) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line + b"\n")

    async def _told(self) -> list[int]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise EvenlaneError("the scenario broke off: the process of the endpoints has ended")
        return msgspec.json.decode(line, type=list[int])

    async def _end(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()
