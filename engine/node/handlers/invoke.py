"""Invokes the handler on messages that may start: in the event loop, in a thread, or by HTTP push."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import signal
from functools import partial
from typing import TYPE_CHECKING, Any

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.handled import MESSAGES
from evenlane.engine.core.message.error_text import describe_error
from evenlane.engine.node.handlers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.node.handlers.handler import Handler
    from evenlane.engine.node.handlers.routes import ProjectHandlers
    from evenlane.engine.node.signals.lease_trust import LeaseTrust


class Untrusted(Exception):
    """The lease lapsed at the very moment before the handler's start; the message wasn't touched."""


class HandlerInvoker:
    """Invokes the handlers that a message's queue rules name. `push` takes messages of topics with HTTP push; without
    it their handlers take them, too. At most `count` threads run at once, and no handler starts while the lease isn't
    trusted.
    """

    def __init__(self, push: Callable[[Message], Awaitable[None]] | None, count: int, trust: LeaseTrust) -> None:
        self._push, self._count, self._trust = push, count, trust
        self._pool: Threads | None = None

    def is_pushed(self, message: Message) -> bool:
        return self._push is not None and message.queue.rules.pushed

    def most(self, message: Message) -> int:
        """The most messages to handle in one call, this one included."""
        return 1 if self.is_pushed(message) else message.queue.rules.handling.batch

    def is_threaded(self, message: Message) -> bool:
        """Whether the message is handled in a thread, which can't be cancelled."""
        handler = None if self.is_pushed(message) else _handler_of(message)
        return handler is not None and not handler.is_async

    async def run(self, messages: list[Message]) -> None:
        """Handle the messages. Raises the handler's error, or Untrusted."""
        if now_ns() >= self._trust.until:
            raise Untrusted
        if self._push is not None and messages[0].queue.rules.pushed and len(messages) == 1:
            await self._push(messages[0])
            return  # (a batch that was made before its topic got `push` still goes to the handler)
        handler = _handler_of(messages[0])
        if handler is None:  # its topic, or the node's rules for it, have changed since it was chosen
            raise Untrusted
        MESSAGES.set(messages)
        given: Any = messages[0]
        if handler.batch:
            given = list(messages)
            for message in messages:
                message.is_batched = True
        if handler.is_async:
            await handler.call(given)
        else:
            await self.run_in_thread(partial(self._call, handler.call, given))

    async def run_in_thread(self, call: Callable[[], None]) -> None:
        """Run `call` in a thread. A thread that timed out keeps its slot until it returns."""
        if self._pool is None:
            self._pool = Threads(self._count)
        await self._pool.run(partial(contextvars.copy_context().run, call))

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()

    def _call(self, call: Callable[[Any], Any], given: Any) -> None:
        """Runs in a thread."""
        if now_ns() >= self._trust.until:
            raise Untrusted
        plainly(call, given)


def _handler_of(message: Message) -> Handler | None:
    handlers: ProjectHandlers | None = message.queue.rules.handling.handlers
    return None if handlers is None else handlers.of(message)


def plainly(call: Callable[[Any], Any], given: Any) -> None:
    """Call a plain handler. An exception that can't cross a future, or that the event loop would take for its own,
    becomes a RuntimeError.
    """
    try:
        check_result(call(given))
    except (StopIteration, asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise RuntimeError(f"the handler raised {describe_error(error)}") from error


def check_result(result: object, what: str = "handler") -> None:
    """Raise TypeError if a plain handler has only made a coroutine or a generator, which nobody runs."""
    if inspect.isawaitable(result) or inspect.isgenerator(result):
        if inspect.iscoroutine(result):
            result.close()
        raise TypeError(f"the {what} returned a {type(result).__name__} that is never run: make it `async def`")


def is_of_handler(error: BaseException, task: asyncio.Task[None] | None, *, stopping: bool) -> bool:
    """Whether the handler itself raised this error, so that it counts as a failed attempt.

    Python raises KeyboardInterrupt for Ctrl-C wherever the program is, unless another handler of SIGINT is installed:
    `asyncio.run` and `evenlane run` have one, and stop the node by other means. A coroutine that is closed gets
    GeneratorExit; its task isn't running then.
    """
    if isinstance(error, KeyboardInterrupt):
        return not stopping and signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    if isinstance(error, GeneratorExit):
        try:
            return asyncio.current_task() is task
        except RuntimeError:
            return False
    return True
