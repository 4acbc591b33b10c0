"""An event loop whose time is a number: many nodes on one thread, each of which can be paused or killed.

Everything that a node schedules carries the node in its context (`NODE`), so the loop knows the node of each callback.
A seeded generator chooses among the nodes that are ready; within a node, the order is kept. When no node is ready, time
jumps to the next timer.
"""

from __future__ import annotations

import asyncio
import sys
import warnings
from asyncio import events
from collections import deque
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from random import Random

SECOND = 1_000_000_000
_START = 1_000 * SECOND  # no clock begins at 0: a time that was never set must not look like a recent one
_MOST_WITHOUT_TIME = 200_000  # callbacks at one instant: more of them are an endless loop


class Actor:
    """A node, or the world around the nodes. The callbacks of an actor run in order."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[Handle] = deque()
        self.paused = self.dead = False
        self.tasks: list[ref[SimTask]] = []
        self.context = copy_context()
        self.context.run(NODE.set, self)

    def __repr__(self) -> str:
        return self.name


NODE: ContextVar[Actor | None] = ContextVar("NODE", default=None)


class Handle:
    """A handle as asyncio's, without support for debuggers."""

    __slots__ = ("_at", "args", "callback", "context", "gone")

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context, at: float = 0) -> None:
        self.callback, self.args, self.context = callback, args, context
        self.gone = False
        self._at = at

    def cancel(self) -> None:
        self.gone = True

    def cancelled(self) -> bool:
        return self.gone

    def when(self) -> float:
        return self._at


_WAKE = asyncio.futures._set_result_unless_cancelled  # type: ignore[attr-defined]
_numbers = count()


class SimTask(asyncio.Task):  # type: ignore[type-arg]
    """A task that its node knows, and whose hash doesn't depend on its address in memory."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.number = next(_numbers)
        super().__init__(*args, **kwargs)
        node = NODE.get()
        if node is not None:
            node.tasks.append(ref(self))

    def __hash__(self) -> int:
        return self.number


class Stuck(AssertionError):
    """Nothing can ever happen any more, or too much at one instant."""


class SimLoop(asyncio.AbstractEventLoop):
    """`choose` draws the order. `failed(what, error)` is called for callbacks that raise."""

    def __init__(self, choose: Random, failed: Callable[[str, BaseException | None], None]) -> None:
        self.now = _START
        self.steps = 0
        self.world = Actor("world")
        self._draw = choose.random
        self._failed = failed
        self._active: list[Actor] = []
        self._timers: list[tuple[int, int, Handle]] = []
        self._numbers = count()
        self._running = self._ended = False

    # ---- the interface of an asyncio loop

    def time(self) -> float:
        return self.now / SECOND

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        if context is None:
            context = copy_context()
        handle = Handle(callback, args, context)
        actor = context.get(NODE) or self.world
        if not (actor.dead or self._ended):
            if not actor.ready and not actor.paused:
                self._active.append(actor)
            actor.ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        return self._at(self.now + int(delay * SECOND), callback, args, context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> Handle:
        return self._at(round(when * SECOND), callback, args, context)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> Any:  # type: ignore[override]
        if self._ended:  # coroutines that a burial creates never start
            coro.close()
        if context is None:
            return SimTask(coro, loop=self, name=name)
        return context.run(SimTask, coro, loop=self, name=name)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._ended

    def close(self) -> None:
        """Schedule nothing any more."""
        self._ended = True

    def _timer_handle_cancelled(self, handle: Any) -> None:
        pass

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self._running and (context.get("message") or "").endswith("never retrieved"):
            return  # the garbage collector calls this at a time that isn't the simulation's
        if self._running:
            self._failed(context.get("message") or "", context.get("exception"))

    # ---- running

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        """Run until `main`, a task of the world, has ended. Raises its exception."""
        events._set_running_loop(self)
        self._running = True
        try:
            task = self.create_task(main, name="main", context=self.world.context)
            self._go(task)
            task.result()
        finally:
            self._running = False
            events._set_running_loop(None)

    def _go(self, task: asyncio.Task[None]) -> None:
        active, draw, still = self._active, self._draw, _MOST_WITHOUT_TIME
        while not task.done():
            if not active:
                self._jump()
                still = self.steps + _MOST_WITHOUT_TIME
                continue
            at = int(draw() * len(active)) if len(active) > 1 else 0
            actor = active[at]
            handle = actor.ready.popleft()
            if not actor.ready:
                active[at] = active[-1]
                active.pop()
            if handle.gone:
                continue
            self.steps += 1
            if self.steps > still:
                raise Stuck(f"{_MOST_WITHOUT_TIME} callbacks at one instant; the next is {handle.callback} of {actor}")
            try:
                handle.context.run(handle.callback, *handle.args)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:  # noqa: BLE001 - as the real loop: one callback's defect ends no other
                self._failed(f"callback {handle.callback} of {actor}", error)

    def _jump(self) -> None:
        timers = self._timers
        if not timers:
            raise Stuck("nothing waits for a timer any more")
        self.now = max(self.now, timers[0][0])
        while timers and timers[0][0] <= self.now:
            handle = heappop(timers)[2]
            if handle.gone:
                continue
            actor = handle.context.get(NODE)
            if handle.callback is _WAKE and not (
                actor and actor.paused
            ):  # `asyncio.sleep`: only the step of the task that it wakes counts
                handle.context.run(_WAKE, *handle.args)
            else:
                self._push(handle)

    def _at(self, when: int, callback: Callable[..., Any], args: tuple[Any, ...], context: Context | None) -> Handle:
        handle = Handle(callback, args, copy_context() if context is None else context, when / SECOND)
        heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def _push(self, handle: Handle) -> None:
        actor = handle.context.get(NODE) or self.world
        if actor.dead or self._ended:
            return
        if not actor.ready and not actor.paused:
            self._active.append(actor)
        actor.ready.append(handle)

    # ---- pause and death of a node

    def pause(self, actor: Actor) -> None:
        """SIGSTOP: the actor freezes; its timers and answers wait."""
        if not actor.paused and actor in self._active:
            self._active.remove(actor)
        actor.paused = True

    def resume(self, actor: Actor) -> None:
        """SIGCONT: the actor goes on. First it sees either its timers, or the answers that came meanwhile."""
        if actor.paused and not actor.dead:
            actor.paused = False
            if self._draw() < 0.5:
                actor.ready = deque(sorted(actor.ready, key=lambda handle: handle.when() == 0))
            if actor.ready:
                self._active.append(actor)

    def kill(self, actor: Actor) -> list[SimTask]:
        """SIGKILL: nothing of the actor ever runs again. Return its tasks, for the caller to hold and `bury`."""
        if actor in self._active:
            self._active.remove(actor)
        actor.dead = True
        actor.ready.clear()
        return [task for known in actor.tasks if (task := known()) is not None and not task.done()]


def bury(tasks: Iterable[SimTask]) -> None:
    """Close coroutines that will never go on, without a report: their last steps no longer matter."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for task in tasks:
                # its last steps belong to its own loop: asyncio's default loop would keep them for ever
                events._set_running_loop(task.get_loop())
                task._log_destroy_pending = False
                _close(task.get_coro())
    finally:
        events._set_running_loop(None)
        sys.unraisablehook = hook


def _close(coroutine: Any) -> None:
    for _ in range(50):
        try:
            coroutine.close()
        except BaseException:  # noqa: BLE001 - its `finally` awaits something: close it once more
            continue
        return
