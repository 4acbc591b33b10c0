"""The broker runner: an arm's load, put in real time to a real node on a real nats-server.

A separate process puts. `put` is the instant at which it sent a message, so a message's wait includes store, feed and
queue. Node and handlers run in this process.
"""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.proof.baselines.schedulers import stored_at
from evenlane.engine.proof.broker.environment import environment
from evenlane.engine.proof.broker.putter import Putter
from evenlane.engine.proof.figures import percentile
from evenlane.engine.proof.load.trace import NEVER, Trace

if TYPE_CHECKING:
    from array import array
    from asyncio import Future
    from collections.abc import Awaitable, Callable, Coroutine

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.proof.arms import Arm
    from evenlane.engine.proof.load.load import Load

    Handle = Callable[[Message], Awaitable[None]]

_LEAD_NS = 100_000_000  # from the moment all are ready to the load's first instant
_TICK_S = 0.02
_SECOND = 1e9
_environments = count(1)

WIDE = MemoryBudget(read_ahead=1 << 20, payload_bytes=1 << 30)
"""Room for the whole backlog of an arm."""


class Broker:
    """Runs arms on the nats-server at `url`, each in a separate environment, which is deleted afterwards."""

    def __init__(self, url: str, slots: int) -> None:
        self.url, self.slots = url, slots

    async def run(self, arm: Arm, passed: Callable[[float], None]) -> Trace:
        """`passed` is called with the share of the load's time that is over. Raises EvenlaneError."""
        return await self.through(arm, arm.load, Run(arm.load, passed))

    async def through(self, arm: Arm, load: Load, run: Run, push: Handle | None = None) -> Trace:
        """The trace of `load`, in place of that of the arm."""
        env, limits = f"bench-{next(_environments)}", WIDE if arm.prefetched else MemoryBudget()
        topics = {each.name: each.topic for each in load.tenants}
        async with (
            environment(self.url, env, load.cluster_config, topics.get) as made,
            Putter(self.url, env, load) as putter,
            made.serve(
                run.handle,
                arm.make(self.slots, stored_at),
                slots=self.slots,
                limits=limits,
                on_stop=run.fail,
                push=push,
            ),
        ):
            await run.through(putter.put)
        return run.trace


class Run:
    """One load, once. The trace also has the ends of handlers that still run when its time is over."""

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
        self.on_handled(number)

    def on_handled(self, number: int) -> None:
        """Called at the end of a message's handler."""

    async def on_begin(self, origin: int) -> None:
        """Called before the load's first instant, which is `origin`, ns of `now_ns`."""

    def fail(self, reason: str) -> None:
        """Note that the node has failed: the run is invalid."""
        if not self._failed.done():
            self._failed.set_exception(EvenlaneError(f"{self.broke_off}: {reason}"))

    broke_off = "the scenario was aborted"

    async def through(self, put: Callable[[int], Coroutine[None, None, array[int]]]) -> None:
        """Run to the end of the load's time; `put(origin)` puts it. Raises EvenlaneError."""
        self.origin = now_ns() + _LEAD_NS
        await self.on_begin(self.origin)
        watch, putting = asyncio.create_task(self._watch()), asyncio.create_task(put(self.origin))
        try:
            pending: set[Future[None]] = {self._failed, watch, putting}  # type: ignore[arg-type]
            while pending != {self._failed}:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            self.trace.put = putting.result()
        finally:
            watch.cancel()
            putting.cancel()
            self._failed.cancel()
            await asyncio.gather(watch, putting, return_exceptions=True)
        self.trace.figures["handled_twice"] = self.again

    async def _watch(self) -> None:
        """Report the progress, and measure how late the event loop is, which a busy machine adds to every figure."""
        late: list[float] = []
        while (now := self.now()) < self.load.until:
            self._passed(max(0.0, now / self.load.until))
            await asyncio.sleep(_TICK_S)
            late.append((self.now() - now) / 1e6 - _TICK_S * 1e3)
        self.trace.figures["loop_late_p99_ms"] = percentile(sorted(late), 0.99) or 0.0

    def now(self) -> int:
        """On the load's clock, ns."""
        return now_ns() - self.origin
