"""The broker runner: the same load, put to a real node on a real nats-server by the clock on the wall.

Put, node and handlers share one process and one event loop, as in a test of latency they may: a burst is put in
small pieces, so that it takes its second without holding up the loop. `put` is the instant at which a message is sent
off; store, feed and index are part of what it then waits.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine.clock import now_ns
from engine.errors import EvenlaneError
from engine.index import Limits, Queue
from engine.scenarios.environment import environment, serving
from engine.scenarios.figures import percentile
from engine.scenarios.trace import NEVER, Trace

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from engine.message import Message
    from engine.ports import Receipt
    from engine.scenarios.environment import Environment
    from engine.scenarios.load import Load
    from engine.scenarios.traced import Arm

_PIECE = 32  # messages of a burst that are sent off in one turn of the event loop
_WINDOW = 2_000  # puts without an answer at the most
_LEAD_NS = 100_000_000  # from the moment the node serves to the load's first instant
_TICK_S = 0.02
_SECOND = 1e9


class Broker:
    """Runs arms on the nats-server at `url`, each in an environment of its own, which is deleted after."""

    def __init__(self, url: str, slots: int) -> None:
        self._url, self._slots = url, slots
        self._count = 0

    async def run(self, arm: Arm, passed: Callable[[float], None]) -> Trace:
        """`passed` is told which share of the load's time is over. Raises EvenlaneError."""
        self._count += 1
        load = arm.load
        scheduler = arm.make(self._slots, _head_at)
        limits = Limits(read_ahead=1 << 20, payload_bytes=1 << 30) if arm.at_hand else Limits()
        async with environment(self._url, f"bench-{self._count}", load.facts, load.tenants) as made:
            run = _Run(load, made, passed)
            node = made.node(run.handle, scheduler, slots=self._slots, limits=limits, on_stop=run.fail)
            async with serving(node):
                await run.through()
            return run.trace


class _Run:
    """One load, once. Handlers that run when it is over are waited for, and get their end."""

    def __init__(self, load: Load, made: Environment, passed: Callable[[float], None]) -> None:
        self._load, self._made, self._passed = load, made, passed
        self.trace = Trace(load)
        self._origin = 0
        self._unanswered = 0
        self._again = 0  # messages handled twice
        self._failed: Future[None] = asyncio.get_running_loop().create_future()

    async def handle(self, message: Message) -> None:
        trace, number = self.trace, int(message.body)
        if trace.started[number] != NEVER:
            self._again += 1
            return
        trace.started[number] = self._now()
        await asyncio.sleep(self._load.service[number] / _SECOND)
        trace.ended[number] = self._now()

    def fail(self, reason: str) -> None:
        """The node, or a put, has failed: the run is worth nothing."""
        if not self._failed.done():
            self._failed.set_exception(EvenlaneError(f"the scenario broke off: {reason}"))

    async def through(self) -> None:
        """To the end of the load's time. Raises EvenlaneError."""
        self._origin = now_ns() + _LEAD_NS
        tasks = [asyncio.create_task(self._put_all()), asyncio.create_task(self._watch())]
        try:
            pending: set[Future[None]] = {self._failed, *tasks}
            while tasks[0] in pending or tasks[1] in pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
        finally:
            for task in tasks:
                task.cancel()
            self._failed.cancel()
        self.trace.figures["handled_twice"] = self._again

    async def _put_all(self) -> None:
        load, put = self._load, self.trace.put
        projects = [each.name for each in load.tenants]
        for number, (at, tenant, group, band, _service) in enumerate(load):
            if (early := at - self._now()) > 0:
                await asyncio.sleep(early / _SECOND)
            put[number] = self._now()
            answer = self._made.put(projects[tenant], group, band, number, b"%d" % number)
            self._unanswered += 1
            answer.add_done_callback(self._answered)
            if number % _PIECE == 0:
                await asyncio.sleep(0)
                if self._unanswered > _WINDOW:
                    await asyncio.wait([answer])  # acknowledgements come in order, or nearly so

    def _answered(self, answer: Future[Receipt]) -> None:
        self._unanswered -= 1
        if not answer.cancelled() and (error := answer.exception()) is not None:
            self.fail(f"a put failed: {error}")

    async def _watch(self) -> None:
        """Tell how far it is, and see how late the event loop is: what a busy machine adds to every figure."""
        late: list[float] = []
        while (now := self._now()) < self._load.until:
            self._passed(max(0.0, now / self._load.until))
            await asyncio.sleep(_TICK_S)
            late.append((self._now() - now) / 1e6 - _TICK_S * 1e3)
        self.trace.figures["loop_late_p99_ms"] = percentile(sorted(late), 0.99) or 0.0

    def _now(self) -> int:
        """On the load's clock, ns."""
        return now_ns() - self._origin


def _head_at(queue: Queue) -> int:
    """The store's time of the queue's first message at hand, unix ns."""
    return queue.hand[0].at
