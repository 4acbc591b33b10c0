"""Python programs as child processes, and the records that parent and child send one another.

A record is MessagePack with its size before it.
"""

from __future__ import annotations

import asyncio
import os
import sys
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, Process
from struct import Struct
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import msgspec

from evenlane.engine.errors import EvenlaneError
from evenlane.engine.runtime.embedded.child import guard

if TYPE_CHECKING:
    from types import TracebackType

SIZE = Struct("<Q")  # precedes each record: its length in bytes
T = TypeVar("T")


async def spawn_python(*arguments: str, env: dict[str, str], **streams: Any) -> Process:
    """Start Python with these arguments and the same modules as here, whatever is in the current folder. The process
    dies with this one.
    """
    env = {**env, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return await asyncio.create_subprocess_exec(
        *guard(), sys.executable, "-P", *arguments, env=env, start_new_session=True, **streams
    )


class ModuleProcess(ABC):
    """Runs a module as a child process. Inside `async with` the module runs and has received its order. Raises
    EvenlaneError.
    """

    module: ClassVar[str]
    title: ClassVar[str]
    """Names the process in error messages."""

    def __init__(self, order: Any) -> None:
        self._order = order
        self._process: Process | None = None

    @abstractmethod
    async def on_started(self) -> None:
        """Receive the module's answer to its order."""

    async def __aenter__(self) -> Self:
        self._process = await spawn_python("-m", self.module, env={**os.environ}, stdin=PIPE, stdout=PIPE)
        try:
            await self._send(self._order)
            await self.on_started()
        except BaseException:
            await self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def _send(self, record: Any) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(_pack(record))
        await self._process.stdin.drain()

    async def _receive(self, kind: type[T]) -> T:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            (size,) = SIZE.unpack(await self._process.stdout.readexactly(SIZE.size))
            return msgspec.msgpack.decode(await self._process.stdout.readexactly(size), type=kind)
        except asyncio.IncompleteReadError:
            raise EvenlaneError(f"the scenario was aborted: {self.title} has ended") from None

    async def _end(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()


# ---- the child's side


def read_record(kind: type[T]) -> T:
    (size,) = SIZE.unpack(sys.stdin.buffer.read(SIZE.size))
    return msgspec.msgpack.decode(sys.stdin.buffer.read(size), type=kind)


def write_record(record: Any) -> None:
    left = memoryview(_pack(record))
    while left:  # with PYTHONUNBUFFERED, `sys.stdout` would make a single partial write, and drop the rest
        left = left[os.write(sys.stdout.fileno(), left) :]


def _pack(record: Any) -> bytes:
    raw = msgspec.msgpack.encode(record)
    return SIZE.pack(len(raw)) + raw
