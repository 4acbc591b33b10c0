"""The broker runner: the same load, put to a real node on a real nats-server by the clock on the wall.

A process of its own puts; `put` is the instant at which it sent a message off, so store, feed and index are part of
what the message then waits. Node and handlers run here.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.scenarios.environment import environment
from evenlane.engine.proof.scenarios.figures import percentile
from evenlane.engine.proof.scenarios.putter import Putter
from evenlane.engine.proof.scenarios.trace import NEVER, Trace

if TYPE_CHECKING:
    from asyncio import Future
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.proof.scenarios.arm import Arm
    from evenlane.engine.proof.scenarios.load import Load

_LEAD_NS = 100_000_000  # from the moment all are ready to the load's first instant
_TICK_S = 0.02
_SECOND = 1e9


class Broker:
    """Runs arms on the nats-server at `url`, each in an environment of its own, which is deleted after."""

    def __init__(self, url: str, slots: int) -> None:
        self.url, self.slots = url, slots
        self._count = 0

    def next_env(self) -> str:
        self._count += 1
        return f"bench-{self._count}"

    async def run(self, arm: Arm, passed: Callable[[float], None]) -> Trace:
        """`passed` is told which share of the load's time is over. Raises EvenlaneError."""
        env, load = self.next_env(), arm.load
        run = Run(load, passed)
        scheduler = arm.make(self.slots, head_at)
        limits = MemoryBudget(read_ahead=1 << 20, payload_bytes=1 << 30) if arm.at_hand else MemoryBudget()
        async with (
            environment(self.url, env, load.facts, load.tenants) as made,
            Putter(self.url, env, load) as putter,
            made.serving(run.handle, scheduler, slots=self.slots, limits=limits, on_stop=run.fail),
        ):
            await run.through(putter)
        return run.trace


class Run:
    """One load, once. Handlers that run when it is over are waited for, and get their end."""

    def __init__(self, load: Load, passed: Callable[[float], None]) -> None:
        self.load, self._passed = load, passed
        self.trace = Trace(load)
        self.origin = 0
        self.again = 0  # messages handled twice
        self._failed: Future[None] = asyncio.get_running_loop().create_future()

    async def handle(self, message: Message) -> None:
        trace, number = self.trace, int(message.body)
        if trace.started[number] != NEVER:
            self.again += 1
            return
        trace.started[number], trace.node[number] = self.now(), 0
        await asyncio.sleep(self.load.service[number] / _SECOND)
        trace.ended[number] = self.now()

    def begins(self, origin: int) -> None:
        """For what else goes by the load's clock: its first instant is `origin`, ns of `now_ns`."""

    def fail(self, reason: str) -> None:
        """The node has failed: the run is worth nothing."""
        if not self._failed.done():
            self._failed.set_exception(EvenlaneError(f"the scenario broke off: {reason}"))

    async def through(self, putter: Putter) -> None:
        """To the end of the load's time. Raises EvenlaneError."""
        self.origin = now_ns() + _LEAD_NS
        self.begins(self.origin)
        watch = asyncio.create_task(self._watch())
        put = asyncio.create_task(putter.put(self.origin))
        try:
            pending: set[Future[None]] = {self._failed, watch, put}  # type: ignore[arg-type]
            while pending != {self._failed}:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            self.trace.put = put.result()
        finally:
            watch.cancel()
            put.cancel()
            self._failed.cancel()
        self.trace.figures["handled_twice"] = self.again

    async def _watch(self) -> None:
        """Tell how far it is, and see how late the event loop is: what a busy machine adds to every figure."""
        late: list[float] = []
        while (now := self.now()) < self.load.until:
            self._passed(max(0.0, now / self.load.until))
            await asyncio.sleep(_TICK_S)
            late.append((self.now() - now) / 1e6 - _TICK_S * 1e3)
        self.trace.figures["loop_late_p99_ms"] = percentile(sorted(late), 0.99) or 0.0

    def now(self) -> int:
        """On the load's clock, ns."""
        return now_ns() - self.origin


def head_at(queue: Queue) -> int:
    """The store's time of the queue's first message at hand, unix ns."""
    return queue.hand[0][2]
