"""Records the attempts of the application's handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.core.message.handler_exceptions import Pause
from evenlane.engine.node.handlers.ack_deadline import HandlerTimedOut
from evenlane.engine.node.handlers.invoke import check_result

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message


class FailedAttempt(NamedTuple):
    """An attempt that failed, and why: what the handler raised, `Retry` and `Reject` included, or a time-out."""

    message: Message
    error: BaseException


class AttemptRecorder:
    """`handled` has the messages whose handler succeeded, `failed` the attempts that failed, both in the order in which
    the handlers ended. `running` has the messages of handlers that have begun and not ended.

    Threads append, too: each change is a single call.
    """

    def __init__(self) -> None:
        self.handled: list[Message] = []
        self.failed: list[FailedAttempt] = []
        self.running: dict[int, list[Message]] = {}
        self.count = 0
        """Grows with each attempt that begins or ends."""

    def wrap(self, call: Callable[[Any], Any], *, is_async: bool, batch: int | None) -> Callable[[Any], Any]:
        """Return a handler that records the attempts of `call`."""

        async def record(given: Any) -> None:
            messages = self._begin(given, batch)
            try:
                await call(given)
            except BaseException as error:
                self._fail(messages, error)
                raise
            self._succeed(messages)

        def record_in_thread(given: Any) -> Any:
            messages = self._begin(given, batch)
            try:
                check_result(result := call(given))
            except BaseException as error:
                self._fail(messages, error)
                raise
            self._succeed(messages)
            return result

        return record if is_async else record_in_thread

    def _begin(self, given: Any, batch: int | None) -> list[Message]:
        messages: list[Message] = given if batch else [given]
        self.running[id(messages)] = messages
        self.count += 1
        return messages

    def _succeed(self, messages: list[Message]) -> None:
        del self.running[id(messages)]
        self.count += 1
        for message in messages:
            if message.timed_out:
                self.failed.append(FailedAttempt(message, HandlerTimedOut()))
            elif (error := getattr(message, "failure", None)) is not None:
                self.failed.append(FailedAttempt(message, error))
            else:
                self.handled.append(message)

    def _fail(self, messages: list[Message], error: BaseException) -> None:
        del self.running[id(messages)]
        self.count += 1
        if isinstance(error, Pause):
            return  # the message waits: it is no attempt
        for message in messages:
            self.failed.append(FailedAttempt(message, HandlerTimedOut() if message.timed_out else error))
