"""Runs the user's fallback handler for messages that would otherwise be dead-lettered (`--fallback`)."""

from __future__ import annotations

import asyncio
import contextvars
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from evenlane.engine.base.clock import now_ns
from evenlane.engine.base.handled import HOLDER, MESSAGES
from evenlane.engine.core.message.error_text import describe_error
from evenlane.engine.errors import ConfigError
from evenlane.engine.node.handlers.ack_deadline import HandlerTimedOut
from evenlane.engine.node.handlers.handler import name_of
from evenlane.engine.node.handlers.invoke import is_of_handler, plainly
from evenlane.engine.node.handlers.threads import Threads
from evenlane.engine.node.handlers.worker import NOTHING, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message
    from evenlane.engine.node.handlers.handler import Handler
    from evenlane.engine.node.handlers.in_flight_gate import InFlightGate

_AT_ONCE = 16
_OF_ONE = 4  # at once, per project
_LOOK_S = 0.1


class Fallback:
    """Runs up to 16 fallbacks at once, and up to four per project, in addition to the node's slots.

    Raises ConfigError for a handler of batches.
    """

    def __init__(self, handler: Handler, gate: InFlightGate) -> None:
        if handler.batch:
            raise ConfigError(f"the fallback {name_of(handler.call)} takes batches: it must take one message")
        self._handler, self._gate = handler, gate
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._rooms: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._threads = Threads(_AT_ONCE)
        self._running: dict[asyncio.Task[None], Message] = {}

    def find_messages(self, task: asyncio.Task[Any]) -> list[Message]:
        """The message whose fallback runs in a task; empty if none does. Thread-safe."""
        message = self._running.get(task)
        return [message] if message is not None else []

    def expect(self, message: Message) -> None:
        """Announce that `handle` follows. Until then the message counts as in flight, so that no suspect starts
        alone.
        """
        if message.recorded:
            self._gate.reserve(message)

    def forgo(self, message: Message) -> None:
        """Withdraw what `expect` announced: the fallback does not run here."""
        self._gate.release(message)

    async def handle(self, message: Message, may_start: Callable[[], bool]) -> bool:
        """Handle the message; False if it may not start now. Raises the handler's error, or HandlerTimedOut after the
        topic's ack_wait.
        """
        mine = self._rooms.setdefault(message.project, asyncio.Semaphore(_OF_ONE))
        async with mine, self._room:
            try:
                if message.recorded:  # if it kills the process, that counts as an attempt
                    self._gate.add(message)
                    await self._gate.wait_until_named()
                if not may_start():
                    self.expect(message)
                    return False
                await self._watch(message)
                return True
            finally:
                self._gate.remove(message)

    def close(self) -> None:
        self._threads.close()

    async def _watch(self, message: Message) -> None:
        message.alive_at = now_ns()
        task = asyncio.create_task(self._call(message), name="fallback")
        self._running[task] = message
        task.add_done_callback(self._running.pop)
        try:
            while not task.done():
                await asyncio.wait([task], timeout=_LOOK_S)
                if not task.done() and 0 < message.queue.rules.ack_wait < now_ns() - message.alive_at:
                    raise HandlerTimedOut
            if task.cancelled():
                raise RuntimeError("the fallback was cancelled from within")
            task.result()
        finally:
            task.cancel()

    async def _call(self, message: Message) -> None:
        worker = Worker()
        worker.messages = [message]
        HOLDER.set(worker)
        MESSAGES.set(worker.messages)
        try:
            await self._handle(message)
        finally:
            worker.messages = NOTHING
            if worker.awaited is not None:
                worker.awaited.cancel()

    async def _handle(self, message: Message) -> None:
        if not self._handler.is_async:
            call = partial(plainly, self._handler.call, message)
            await self._threads.run(partial(contextvars.copy_context().run, call))
            return
        try:
            await self._handler.call(message)
        except (SystemExit, KeyboardInterrupt) as error:  # they would end the loop
            if not is_of_handler(error, asyncio.current_task(), stopping=False):
                raise
            raise RuntimeError(f"the fallback raised {describe_error(error)}") from error
