"""Runs the lifespan of an application: what it opens before the first message, and closes after the last one."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import structlog

from evenlane.engine.core.message.error_text import describe_error, find_origin
from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.engine.node.handlers.handler import name_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Lifespan = Callable[[Any], AbstractAsyncContextManager[Any]]

_log = structlog.get_logger(__name__)


def as_lifespan(given: Any) -> Lifespan:
    """Return a function from the application to an async context manager. Raises ConfigError."""
    if inspect.isasyncgenfunction(given):
        given = asynccontextmanager(given)
    if not callable(given) or inspect.iscoroutinefunction(given) or inspect.isgeneratorfunction(given):
        raise ConfigError(
            f"the lifespan {name_of(given)} is not an async context manager: write `async def` with one `yield`, under"
            " @contextlib.asynccontextmanager"
        )
    try:
        inspect.signature(given).bind(object())
    except TypeError as error:
        raise ConfigError(f"the lifespan {name_of(given)} must take one argument, the application: {error}") from error
    lifespan: Lifespan = given
    return lifespan


class _ExitError(Exception):
    """The lifespan has raised what would end the process; it is the cause of this error."""


class LifespanTask:
    """One run of a lifespan, in a task of its own: it begins and ends in one task, as task groups inside it need.

    `on_end(reason)` is called if the lifespan ends by itself while the application runs; `end` has no effect then.
    """

    def __init__(self, lifespan: Lifespan, app: Any, on_end: Callable[[str], None]) -> None:
        self._lifespan, self._app, self._on_end, self._name = lifespan, app, on_end, name_of(lifespan)
        self.state: Any = None
        self._has_begun, self._should_end = asyncio.Event(), asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self, timeout_s: float) -> None:
        """Return once it has yielded. Raises EvenlaneError if it fails, or takes longer than `timeout_s`."""
        self._task = asyncio.create_task(self._run(), name="lifespan")
        begun = asyncio.create_task(self._has_begun.wait())
        try:
            await asyncio.wait({self._task, begun}, timeout=timeout_s or None, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._cancel()
            raise
        finally:
            begun.cancel()
        if self._task.done():
            raise self._failure(self._task, "failed at its start")
        if not self._has_begun.is_set():
            await self._cancel()
            raise EvenlaneError(
                f"the lifespan {self._name} did not yield within {timeout_s:g} s (start_timeout), so the node does not"
                " start"
            )
        self._task.add_done_callback(self._on_done)

    async def end(self, timeout_s: float) -> None:
        """Let it end. Raises EvenlaneError if it fails, or takes longer than `timeout_s`."""
        if self._task is None:
            return
        self._should_end.set()
        await asyncio.wait({self._task}, timeout=timeout_s)
        if not self._task.done():
            await self._cancel()
            raise EvenlaneError(f"the lifespan {self._name} did not end within {timeout_s:.1f} s: it was cancelled")
        if self._task.cancelled() or self._task.exception() is not None:
            raise self._failure(self._task, "failed at its end")

    async def _run(self) -> None:
        context = self._lifespan(self._app)
        if not isinstance(context, AbstractAsyncContextManager):
            if inspect.iscoroutine(context):
                context.close()
            raise TypeError(f"it returned an object of type {type(context).__name__}, no async context manager")
        try:
            async with context as self.state:
                self._has_begun.set()
                await self._should_end.wait()
        except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop
            raise _ExitError from error

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if not self._should_end.is_set():
            self._should_end.set()
            self._task = None
            self._on_end(str(self._failure(task, "ended while the application ran")))

    def _failure(self, task: asyncio.Task[None], what: str) -> EvenlaneError:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            return EvenlaneError(f"the lifespan {self._name} {what}: it returned")
        while isinstance(error, BaseExceptionGroup):  # of a task group
            error = error.exceptions[0]
        if isinstance(error, _ExitError) and error.__cause__ is not None:
            error = error.__cause__
        where, text = find_origin(error), " ".join(describe_error(error).split())
        if isinstance(error, RuntimeError) and str(error) in _NOT_ONE_YIELD:
            where, text = "", "it must yield exactly once"
        failure = EvenlaneError(f"the lifespan {self._name} {what}: {text}{where and f' ({where})'}")
        failure.__cause__ = error
        return failure

    async def _cancel(self) -> None:
        """Cancel it; a lifespan that ignores that is abandoned."""
        assert self._task is not None
        self._should_end.set()
        self._task.cancel()
        with suppress(TimeoutError):
            await asyncio.wait({self._task}, timeout=_FAREWELL_S)
        if not self._task.done():
            _log.warning("the lifespan ignores its cancellation", lifespan=self._name)


_FAREWELL_S = 1.0
_NOT_ONE_YIELD = ("generator didn't yield", "generator didn't stop")  # of contextlib
