"""The process of `putter`: reads an order from stdin, then the instant to begin, and says on stdout what it did."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from array import array
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import uvloop

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.base.log_setup import setup
from evenlane.engine.core.ports import Lost
from evenlane.engine.proof.scenarios.puts import putting
from evenlane.engine.proof.scenarios.putter import SIZE, Order, Told

if TYPE_CHECKING:
    from asyncio import Future

    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.proof.scenarios.puts import Puts

_PIECE = 64  # messages of a burst that are sent off in one turn of the event loop
_WINDOW = 1_000  # puts of one tenant without an answer at the most
_TRIES = 4  # of one message, beyond the first: within the streams' duplicate window
_SECOND = 1e9


class _Message(NamedTuple):
    """What `Puts.put` takes."""

    project: str
    group: int
    band: int
    number: int
    body: bytes


class Schedule:
    """Each tenant puts by itself, as nobody's producer waits behind another's burst."""

    def __init__(self, order: Order, puts: Puts, origin: int) -> None:
        self._puts, self._origin, self._projects = puts, origin, order.projects
        self._at, self._tenant = array("q", order.at), array("l", order.tenant)
        self._group, self._band = array("l", order.group), array("b", order.band)
        self._service = array("q", order.service)
        self._sent = array("q", self._at)

    async def carried_out(self) -> array[int]:
        """When each message was sent off; all are acknowledged then. Raises what a put raises."""
        of_tenant: dict[int, list[int]] = {}
        for number, tenant in enumerate(self._tenant):
            of_tenant.setdefault(tenant, []).append(number)
        await asyncio.gather(*(self._put(self._projects[tenant], of) for tenant, of in of_tenant.items()))
        return self._sent

    async def _put(self, project: str, numbers: list[int]) -> None:
        waiting: deque[tuple[Future[Receipt], _Message]] = deque()
        for count, number in enumerate(numbers):
            if (early := self._at[number] - (now_ns() - self._origin)) > 0:
                await asyncio.sleep(early / _SECOND)
            elif count % _PIECE == 0:
                await asyncio.sleep(0)
            if len(waiting) == _WINDOW:
                await asyncio.wait([waiting[_WINDOW // 2][0]])  # one by one they would go in packets of one
                while waiting and waiting[0][0].done():
                    await self._taken(*waiting.popleft())
            self._sent[number] = now_ns() - self._origin
            body = b"%d %d" % (number, self._service[number]) if self._service else b"%d" % number
            message = _Message(project, self._group[number], self._band[number], number, body)
            waiting.append((self._puts.put(*message), message))
        for each in waiting:
            await self._taken(*each)

    async def _taken(self, answer: Future[Receipt], message: _Message) -> None:
        """Wait until the store has it. A server that has to sync much may answer late; it drops what it has."""
        for _ in range(_TRIES):
            try:
                await answer
                return
            except Lost:
                answer = self._puts.put(*message)
        await answer


async def _carried_out(order: Order) -> Told:
    spreads = dict(zip(order.projects, order.spreads, strict=True))
    async with putting(order.url, order.env, order.facts, spreads) as puts:
        _say(Told())
        origin = SIZE.unpack(await asyncio.to_thread(_read))[0]
        return Told(sent=(await Schedule(order, puts, origin).carried_out()).tobytes())


def _read() -> bytes:
    (size,) = SIZE.unpack(sys.stdin.buffer.read(SIZE.size))
    return sys.stdin.buffer.read(size)


def _say(told: Told) -> None:
    record = msgspec.msgpack.encode(told)
    left = memoryview(SIZE.pack(len(record)) + record)
    while left:  # where PYTHONUNBUFFERED is set, `sys.stdout` would write what goes in at once, and drop the rest
        left = left[os.write(sys.stdout.fileno(), left) :]


def main() -> None:
    setup("auto", "error")
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # of puts that fail together, the first one is told
    tune_gc()
    order = msgspec.msgpack.decode(_read(), type=Order)
    try:
        _say(uvloop.run(_carried_out(order)))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told where it is waited for
        _say(Told(error=f"{type(error).__name__}: {error}"))
    sys.stdin.buffer.read()  # until the parent has read it: uvloop drops what a child that has gone had written


if __name__ == "__main__":
    main()
