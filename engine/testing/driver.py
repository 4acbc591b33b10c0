"""Runs the event loop for the test kit, and lets time jump from one instant to the next at which anything happens."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.engine.node.handlers.threads import count_running
from evenlane.engine.testing.virtual_clock import SECOND, to_ns

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from evenlane.engine.testing.loop_time import LoopTime
    from evenlane.engine.testing.virtual_clock import VirtualClock

T = TypeVar("T")

_THREADS_S = 1.0  # real seconds for which time stands still while threads run
_LOOK_S = 0.001  # real seconds, at most, of one wait for a thread or a socket
_TURNS = 1_000  # turns of the loop between two looks at the real time
# Tasks that only look, again and again, whether something has happened: to handlers, puts, and delayed messages.
_PERIODIC = frozenset({"ack_wait", "producer retries"})
_OF_DELAYED = frozenset({"due", "hours"})


class Work(Protocol):
    """What the driver needs to know of the application."""

    @property
    def is_busy(self) -> bool:
        """Whether handlers run, or are about to."""

    @property
    def progress(self) -> int:
        """A number that grows with each attempt that begins or ends."""

    @property
    def has_delayed(self) -> bool:
        """Whether any message is delayed."""

    @property
    def producers(self) -> int:
        """The number of producers that were made."""

    def explain_stuck(self, how_long: str) -> str:
        """A sentence: which handler hasn't ended for so long."""


class Stuck(EvenlaneError, AssertionError):
    """A handler doesn't end, so the test kit can't go on."""


class Driver:
    """Lets everything happen in order, each thing at its own instant.

    Time stands still while anything can run. While a handler waits for timers only, time jumps to the next one. A call
    in a thread is waited for in real time, and time stands still for a second meanwhile. While a handler may wait for a
    socket, time passes as it really does. `patience_s` are the real seconds to wait for a handler that makes no
    progress.
    """

    def __init__(self, clock: VirtualClock, loop_time: LoopTime, work: Work, patience_s: float) -> None:
        self._clock, self._loop_time, self._work, self._patience_s = clock, loop_time, work, patience_s
        self._periodic: list[asyncio.Task[Any]] = []
        self._of_delayed: list[asyncio.Task[Any]] = []
        self._producers = 0  # when these lists were made
        self._is_patient = True
        self._waits_since, self._progress = 0.0, -1

    def _find_sleeping(self) -> list[asyncio.Task[Any]]:
        """The periodic tasks that needn't run now."""
        if self._work.is_busy:
            return []
        if self._producers != self._work.producers:
            self._producers, tasks = self._work.producers, asyncio.all_tasks()
            self._periodic = [task for task in tasks if task.get_name() in _PERIODIC]
            self._of_delayed = [task for task in tasks if task.get_name() in _OF_DELAYED]
        return self._periodic if self._work.has_delayed else [*self._periodic, *self._of_delayed]

    async def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of a call, whatever time it takes. Raises its error, and Stuck."""
        if self._clock.is_driven:
            return await call
        task = asyncio.create_task(call)
        try:
            with self._clock.driven():
                await self._go_on(task.done, with_sockets=True)
            if not task.done():
                raise Stuck(self._work.explain_stuck("for ever: nothing can happen any more"))
            return task.result()
        finally:
            task.cancel()

    async def advance(self, until: int) -> None:
        """Let time pass until `until` (monotonic ns). Raises Stuck."""
        self._check_free()
        with self._clock.driven():
            await self._go_on(lambda: False, until)
            self._clock.move_to(until)
            await self._settle()

    async def jump_while(self, holds: Callable[[], bool], longest_s: float) -> None:
        """Let time jump while `holds()`. Raises Stuck if this takes longer than `longest_s` of the clock's time."""
        self._check_free()
        with self._clock.driven():
            await self._go_on(lambda: not holds(), self._clock.now + int(longest_s * SECOND))
        if holds():
            raise Stuck(self._work.explain_stuck(f"within {longest_s:g} s of the test's time"))

    def give_up(self) -> None:
        """Don't wait in real time any more."""
        self._is_patient = False

    def _check_free(self) -> None:
        if self._clock.is_driven:
            raise ConfigError(
                "run_until_idle and advance run one after another: a handler or another task can't call them"
            )

    async def _go_on(
        self, is_done: Callable[[], bool], until: int | None = None, *, with_sockets: bool = False
    ) -> None:
        self._waits_since = time.monotonic()
        while True:
            await self._settle()
            if is_done():
                return
            if self._is_patient and await self._wait_really(with_sockets=with_sockets):
                continue
            at = self._loop_time.next_timer(self._find_sleeping())
            if at is None or (until is not None and to_ns(at) > until):
                return
            self._clock.move_to(to_ns(at))

    async def _settle(self) -> None:
        """Return once nothing can run without time passing, or after some turns if patience is at its end."""
        turns = 0
        await asyncio.sleep(0)
        while self._loop_time.has_ready:
            await asyncio.sleep(0)
            turns += 1
            if turns % _TURNS == 0:
                self._check_patience()
                if not self._is_patient:
                    return

    async def _wait_really(self, *, with_sockets: bool) -> bool:
        """Wait until something can run because of a thread or a socket. False if nothing waits for one."""
        calls = self._loop_time.has_calls or count_running(asyncio.get_running_loop()) > 0
        sockets = (with_sockets or self._work.is_busy) and self._loop_time.has_sockets
        if not calls and not sockets:
            return False
        began = last = time.monotonic()
        while not self._loop_time.has_ready:
            self._loop_time.wait_for_events(_LOOK_S)
            await asyncio.sleep(0)
            now = time.monotonic()
            if (sockets or now - began > _THREADS_S) and self._pass_time(now - last):
                break
            last = now
            self._check_patience()
        return True

    def _pass_time(self, seconds: float) -> bool:
        """Let time pass, up to the next timer; True if it has come."""
        at = self._loop_time.next_timer()
        then = self._clock.now + int(seconds * SECOND)
        is_due = at is not None and to_ns(at) <= then
        self._clock.move_to(to_ns(at) if is_due and at is not None else then)
        return is_due

    def _check_patience(self) -> None:
        """Raises Stuck if nothing has ended for too long."""
        if self._progress != self._work.progress:
            self._progress, self._waits_since = self._work.progress, time.monotonic()
        elif time.monotonic() - self._waits_since > self._patience_s and self._is_patient:
            self.give_up()
            raise Stuck(self._work.explain_stuck(f"within {self._patience_s:g} s of real time"))
