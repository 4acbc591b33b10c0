"""A process that puts a load by the clock on the wall, as producers do: not in the node's own process, where a burst
would take the event loop from the handlers.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from array import array
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from engine.clock import now_ns
from engine.errors import EvenlaneError

if TYPE_CHECKING:
    from asyncio import Future
    from types import TracebackType

    from engine.ports import Receipt
    from engine.scenarios.load import Load
    from engine.scenarios.puts import Puts

_PIECE = 64  # messages of a burst that are sent off in one turn of the event loop
_WINDOW = 1_000  # puts of one tenant without an answer at the most
_SECOND = 1e9
_READY = "ready"


class Putter:
    """Inside `async with` the process is connected and waits for its start. Raises EvenlaneError."""

    def __init__(self, url: str, env: str, load: Load) -> None:
        context = multiprocessing.get_context("spawn")  # an event loop must not be forked
        self._pipe, theirs = context.Pipe()
        self._theirs = theirs
        self._process = context.Process(target=_process, args=(theirs, url, env, load), name="putter", daemon=True)

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self._process.start)
        self._theirs.close()  # so that the end of the process is seen as the end of the pipe
        try:
            await self._answer()
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
        self._pipe.send(origin)
        sent: array[int] = await self._answer()
        return sent

    async def _answer(self) -> Any:
        """What the process says next: `_READY`, the instants, or what went wrong, which is raised."""
        try:
            said = await asyncio.to_thread(self._pipe.recv)
        except EOFError:
            said = EvenlaneError("the process that puts has ended")
        if isinstance(said, Exception):
            raise EvenlaneError(f"the scenario broke off: {said}")
        return said

    async def _end(self) -> None:
        self._process.kill()
        await asyncio.to_thread(self._process.join)
        self._pipe.close()


def _process(pipe: Any, url: str, env: str, load: Load) -> None:
    """The whole life of the process."""
    import uvloop  # noqa: PLC0415 - nobody else needs it here

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ctrl-C comes to all: whoever started this one ends it
    try:
        pipe.send(uvloop.run(_life(pipe, url, env, load)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told where it is waited for
        pipe.send(EvenlaneError(f"{type(error).__name__}: {error}"))


async def _life(pipe: Any, url: str, env: str, load: Load) -> array[int]:
    from engine.scenarios.puts import putting  # noqa: PLC0415 - loaded where it is needed, in the process

    async with putting(url, env, load.facts, load.tenants) as puts:
        pipe.send(_READY)
        origin: int = await asyncio.to_thread(pipe.recv)
        return await _Schedule(load, puts, origin).carried_out()


class _Schedule:
    """Each tenant puts by itself, as nobody's producer waits behind another's burst."""

    def __init__(self, load: Load, puts: Puts, origin: int) -> None:
        self._load, self._puts, self._origin = load, puts, origin
        self._sent = array("q", load.at)

    async def carried_out(self) -> array[int]:
        of_tenant: dict[int, list[int]] = {}
        for number, tenant in enumerate(self._load.tenant):
            of_tenant.setdefault(tenant, []).append(number)
        async with asyncio.TaskGroup() as group:
            for tenant, numbers in of_tenant.items():
                group.create_task(self._put(self._load.tenants[tenant].name, numbers))
        return self._sent

    async def _put(self, project: str, numbers: list[int]) -> None:
        load = self._load
        waiting: deque[Future[Receipt]] = deque()
        for count, number in enumerate(numbers):
            if (early := load.at[number] - (now_ns() - self._origin)) > 0:
                await asyncio.sleep(early / _SECOND)
            elif count % _PIECE == 0:
                await asyncio.sleep(0)
            if len(waiting) == _WINDOW:
                await asyncio.wait([waiting[_WINDOW // 2]])  # one by one they would go in packets of one
                while waiting and waiting[0].done():
                    waiting.popleft().result()
            self._sent[number] = now_ns() - self._origin
            waiting.append(self._puts.put(project, load.group[number], load.band[number], number, b"%d" % number))
        await asyncio.gather(*waiting)
