"""The process that puts a load in real time, as producers do, and the side that starts it.

It is separate from the node's process, where a burst would keep the event loop from the handlers.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from array import array
from collections import deque
from typing import TYPE_CHECKING

import msgspec
import uvloop

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.garbage_collector import tune_gc
from evenlane.engine.base.log_setup import setup
from evenlane.engine.cluster.cluster_config import ClusterConfig  # noqa: TC001 - msgspec reads the annotations
from evenlane.engine.core.ports import Lost
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.broker.background import run_in_background
from evenlane.engine.proof.broker.child import ModuleProcess, read_record, write_record
from evenlane.engine.proof.broker.puts import open_puts
from evenlane.engine.proof.load.arrivals import SECOND

if TYPE_CHECKING:
    from asyncio import Future
    from contextlib import AbstractAsyncContextManager

    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.proof.broker.puts import Puts
    from evenlane.engine.proof.load.load import Load


class PutOrder(msgspec.Struct):
    """The order to put a load. The columns are those of the load, `projects` and `spreads` of its tenants."""

    url: str
    env: str
    cluster_config: ClusterConfig
    projects: list[str]
    spreads: list[int]
    at: bytes
    tenant: bytes
    group: bytes
    band: bytes
    service: bytes = b""


class PutReport(msgspec.Struct):
    """A report of the process, sent when it is ready and when it is done. `sent` is a column of instants, ns since the
    origin.
    """

    sent: bytes = b""
    error: str = ""


class Putter(ModuleProcess):
    """Inside `async with` the process is connected and waits for its start. A message's body is its number in the load,
    `with_service` followed by its handler's time, in ns. Raises EvenlaneError.
    """

    module = "evenlane.engine.proof.broker.putter"
    title = "the process that puts"

    def __init__(self, url: str, env: str, load: Load, *, with_service: bool = False) -> None:
        at, tenant, group, band = (each.tobytes() for each in (load.at, load.tenant, load.group, load.band))
        projects, spreads = [each.name for each in load.tenants], [each.topic.spread for each in load.tenants]
        service = load.service.tobytes() if with_service else b""
        super().__init__(PutOrder(url, env, load.cluster_config, projects, spreads, at, tenant, group, band, service))
        self._lasts_s = load.until / SECOND

    async def on_started(self) -> None:
        await self._report()

    async def put(self, origin: int) -> array[int]:
        """Put the load, whose first instant is `origin` (ns of `now_ns`); returns when each message was sent off, ns
        since then. Raises EvenlaneError.
        """
        await self._send(origin)
        return array("q", (await self._report()).sent)

    def put_during(self, origin: int) -> AbstractAsyncContextManager[None]:
        """Put the load as long as the block runs. Raises EvenlaneError, as well if the load ends before the block."""
        return run_in_background(self._put_to_end(origin))

    async def _put_to_end(self, origin: int) -> None:
        await self.put(origin)
        raise EvenlaneError(f"the scenario was aborted: it was slower than its load of {self._lasts_s:g} s")

    async def _report(self) -> PutReport:
        outcome = await self._receive(PutReport)
        if outcome.error:
            raise EvenlaneError(f"the scenario was aborted: {outcome.error}")
        return outcome


# ---- in the process

_PIECE = 64  # messages of a burst that are sent off in one turn of the event loop
_WINDOW = 1_000  # most unacknowledged puts of one tenant
_TRIES = 4  # further tries of one message, within the streams' duplicate window
_Message = tuple[str, int, int, int, bytes]  # the arguments of `Puts.put`


class Schedule:
    """The order of puts. Each tenant puts independently: no producer waits behind the burst of another."""

    def __init__(self, order: PutOrder, puts: Puts, origin: int) -> None:
        self._puts, self._origin, self._projects = puts, origin, order.projects
        self._at, self._tenant = array("q", order.at), array("l", order.tenant)
        self._group, self._band = array("l", order.group), array("b", order.band)
        self._service = array("q", order.service)
        self._sent = array("q", self._at)

    async def carry_out(self) -> array[int]:
        """Put all messages. Returns the instants at which they were sent, once all are acknowledged. Raises what a put
        raises.
        """
        of_tenant: dict[int, list[int]] = {}
        for number, tenant in enumerate(self._tenant):
            of_tenant.setdefault(tenant, []).append(number)
        await asyncio.gather(*(self._put(self._projects[tenant], of) for tenant, of in of_tenant.items()))
        return self._sent

    async def _put(self, project: str, numbers: list[int]) -> None:
        waiting: deque[tuple[Future[Receipt], _Message]] = deque()
        for count, number in enumerate(numbers):
            if (early := self._at[number] - (now_ns() - self._origin)) > 0:
                await asyncio.sleep(early / SECOND)
            elif count % _PIECE == 0:
                await asyncio.sleep(0)
            if len(waiting) == _WINDOW:
                await asyncio.wait([waiting[_WINDOW // 2][0]])  # sent one by one, each would be a packet of its own
                while waiting and waiting[0][0].done():
                    await self._await_receipt(*waiting.popleft())
            self._sent[number] = now_ns() - self._origin
            body = b"%d %d" % (number, self._service[number]) if self._service else b"%d" % number
            message = (project, self._group[number], self._band[number], number, body)
            waiting.append((self._puts.put(*message), message))
        for each in waiting:
            await self._await_receipt(*each)

    async def _await_receipt(self, answer: Future[Receipt], message: _Message) -> None:
        """Wait until the store has the message; put it again if no answer comes. A server that has to sync much data
        may answer late; it drops a message that it already has.
        """
        for _ in range(_TRIES):
            try:
                await answer
                return
            except Lost:
                answer = self._puts.put(*message)
        await answer


async def _carry_out(order: PutOrder) -> PutReport:
    spreads = dict(zip(order.projects, order.spreads, strict=True))
    async with open_puts(order.url, order.env, order.cluster_config, spreads) as puts:
        write_record(PutReport())
        origin = await asyncio.to_thread(read_record, int)
        return PutReport(sent=(await Schedule(order, puts, origin).carry_out()).tobytes())


def main() -> None:
    setup("auto", "error")
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # if several puts fail, the first failure is reported
    tune_gc()
    order = read_record(PutOrder)
    try:
        write_record(uvloop.run(_carry_out(order)))
    except Exception as error:  # noqa: BLE001 - any error is raised where the outcome is received
        write_record(PutReport(error=f"{type(error).__name__}: {error}"))
    sys.stdin.buffer.read()  # wait until the parent has read it: uvloop drops unread output of a child that has exited


if __name__ == "__main__":
    main()
