"""Middleware: functions around a handler. The first one is the outermost.

    async def measure(message, call_next):
        started = perf_counter()
        await call_next(message)
        print(message.project, perf_counter() - started)

Async and plain functions can be mixed: a plain one runs in a thread, and so does everything plain directly inside it.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.handler import name_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.app.scope import Scope


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


def surround(middleware: Callable[[Any, Any], Any], inner: Layer, scope: Scope) -> Layer:
    """Return the layer of a middleware around another layer."""
    if is_async(middleware):
        within = inner.call if inner.is_async else partial(_in_thread, inner.call, scope)
        return Layer(partial(_run_async, middleware, within), is_async=True)
    within = partial(_in_loop, inner.call, scope) if inner.is_async else inner.call
    return Layer(partial(_run_plain, middleware, within), is_async=False)


def is_async(call: Any) -> bool:
    return inspect.iscoroutinefunction(call) or inspect.iscoroutinefunction(
        getattr(call, "__call__", None)  # noqa: B004 - an object with an async __call__
    )


class _NextCall:
    """The next call of one message, and how it has ended."""

    def __init__(self, inner: Callable[[Any], Awaitable[Any]]) -> None:
        self._inner = inner
        self.is_begun = self.is_ended = self.is_cancelled = False

    def __call__(self, given: Any) -> Awaitable[Any]:
        self.is_begun = True
        return self._run(given)

    async def _run(self, given: Any) -> Any:
        try:
            return await self._inner(given)
        except asyncio.CancelledError:
            self.is_cancelled = True
            raise
        finally:
            self.is_ended = True


async def _run_async(middleware: Callable[[Any, Any], Any], inner: Callable[[Any], Awaitable[Any]], given: Any) -> Any:
    following = _NextCall(inner)
    result = await middleware(given, following)
    if following.is_cancelled:
        raise MiddlewareMisuse(
            f"the middleware {name_of(middleware)} swallowed the CancelledError of its handler: it must raise it again,"
            " and the message counts as not handled"
        )
    if following.is_begun and not following.is_ended:
        raise MiddlewareMisuse(f"the middleware {name_of(middleware)} did not await call_next(message)")
    return result


def _run_plain(middleware: Callable[[Any, Any], Any], inner: Callable[[Any], Any], given: Any) -> Any:
    return middleware(given, inner)


async def _in_thread(call: Callable[[Any], Any], scope: Scope, given: Any) -> Any:
    """Call a plain function from the event loop."""
    assert scope.threads is not None
    results: list[Any] = []
    context = contextvars.copy_context()
    await scope.threads.run(lambda: results.append(context.run(call, given)))
    return results[0]


def _in_loop(call: Callable[[Any], Awaitable[Any]], scope: Scope, given: Any) -> Any:
    """Await an async function from a thread."""
    assert scope.loop is not None
    return asyncio.run_coroutine_threadsafe(_await(call, given), scope.loop).result()


async def _await(call: Callable[[Any], Awaitable[Any]], given: Any) -> Any:
    return await call(given)
