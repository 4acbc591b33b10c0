"""Middleware: functions around a handler. The first one is the outermost.

    async def measure(message, call_next):
        started = perf_counter()
        await call_next(message)
        print(message.project, perf_counter() - started)

Async and plain functions can be mixed. If any of them is plain, or the handler is, the message has a thread, in which
all of its plain functions run.
"""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from evenlane.engine.app.message_thread import from_loop, from_thread, with_thread
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.handler import name_of
from evenlane.engine.node.handlers.invoke import check_result

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence


_log = structlog.get_logger(__name__)


class MiddlewareMisuse(Exception):
    """A middleware has ended in a way that leaves open whether the message was handled, so the attempt has failed."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.for_logs = text


class Layer(NamedTuple):
    """A handler, or a middleware with everything inside it."""

    call: Callable[[Any], Any]
    is_async: bool


def check_middleware(middleware: Any) -> None:
    """Raises ConfigError unless it can be called with a message and the next call."""
    if not callable(middleware):
        raise ConfigError(f"the middleware {middleware!r} is not a function: it must take a message and call_next")
    if inspect.isgeneratorfunction(middleware) or inspect.isasyncgenfunction(middleware):
        raise ConfigError(f"the middleware {name_of(middleware)} is a generator: it must call call_next, not yield")
    try:
        inspect.signature(middleware).bind(object(), object())
    except TypeError as error:
        raise ConfigError(
            f"the middleware {name_of(middleware)} must take two arguments, the message and call_next: {error}"
        ) from error
    except ValueError:
        pass  # a builtin without a signature: the first call will tell


def surround(
    middleware: Sequence[Callable[[Any, Any], Any]], handler: Layer, loop: Callable[[], asyncio.AbstractEventLoop]
) -> Layer:
    """Return the handler with its middleware around it, the first one outermost: async if all of them are, otherwise
    plain, so that a message has one thread whatever the order. `loop()` is the event loop of the async ones.
    """
    layer = handler if handler.is_async else Layer(partial(_run_handler, handler.call), is_async=False)
    for each in reversed(middleware):
        layer = _surround_one(each, layer)
    is_mixed = len({handler.is_async, *map(is_async, middleware)}) > 1
    if not is_mixed:
        return layer
    outermost = from_thread(layer.call) if layer.is_async else layer.call
    return Layer(with_thread(outermost, loop), is_async=False)


def _surround_one(middleware: Callable[[Any, Any], Any], inner: Layer) -> Layer:
    if is_async(middleware):
        within = inner.call if inner.is_async else from_loop(inner.call)
        return Layer(partial(_run_async, middleware, within), is_async=True)
    within = from_thread(inner.call) if inner.is_async else inner.call
    return Layer(partial(_run_plain, middleware, within), is_async=False)


def is_async(call: Any) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


class _NextCall:
    """The next call of one message, and how it has ended. A middleware may make it several times."""

    def __init__(self, middleware: Callable[[Any, Any], Any], inner: Callable[[Any], Any]) -> None:
        self._name, self._inner = name_of(middleware), inner
        self._begun = self._ended = 0
        self._is_cancelled = False  # the last one to end

    async def _run(self, given: Any) -> Any:
        is_cancelled = False
        try:
            return await self._inner(given)
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            self._note_end(is_cancelled=is_cancelled)

    def begin(self, given: Any) -> Awaitable[Any]:
        """The next call, for an async middleware."""
        self._begun += 1
        return self._run(given)

    def call(self, given: Any) -> Any:
        """The next call, for a plain middleware."""
        self._begun += 1
        is_cancelled = False
        try:
            return self._inner(given)
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            self._note_end(is_cancelled=is_cancelled)

    def check(self) -> None:
        """Raises MiddlewareMisuse if the middleware has returned, and the message still wasn't handled."""
        if self._ended < self._begun:
            raise MiddlewareMisuse(f"the middleware {self._name} did not await call_next(message)")
        if self._is_cancelled:
            raise MiddlewareMisuse(
                f"the middleware {self._name} swallowed the CancelledError of its handler: it must raise it again, and"
                " the message counts as not handled"
            )

    def _note_end(self, *, is_cancelled: bool = False) -> None:
        self._ended += 1
        self._is_cancelled = is_cancelled


async def _run_async(middleware: Callable[[Any, Any], Any], inner: Callable[[Any], Awaitable[Any]], given: Any) -> Any:
    following = _NextCall(middleware, inner)
    result = await middleware(given, following.begin)
    try:
        following.check()
    except MiddlewareMisuse as error:
        if _is_drained(given):  # nothing is wrong with the message, which is handled again
            _log.warning("a middleware swallows cancellation", reason=error.for_logs)
            raise asyncio.CancelledError from None
        raise
    return result


def _is_drained(given: Any) -> bool:
    """Whether the task is being cancelled because the node stops, not because its messages took too long."""
    first = given[0] if isinstance(given, list) else given
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0 and not getattr(first, "timed_out", False)


def _run_plain(middleware: Callable[[Any, Any], Any], inner: Callable[[Any], Any], given: Any) -> Any:
    following = _NextCall(middleware, inner)
    result = middleware(given, following.call)
    following.check()
    check_result(result, f"middleware {name_of(middleware)}")
    return result


def _run_handler(handler: Callable[[Any], Any], given: Any) -> Any:
    """Run a plain handler, whose result its middleware may not pass on."""
    result = handler(given)
    check_result(result)
    return result
