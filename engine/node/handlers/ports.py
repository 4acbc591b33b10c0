"""The ports through which workers reach the parts above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from evenlane.engine.core.message.handler_exceptions import Pause
    from evenlane.engine.core.message.message import Message


class MessageSource(Protocol):
    """The source of a worker's messages."""

    def next(self, now: int) -> list[Message] | None:
        """Messages of one queue that may start together, usually one; None if none may. `now` is monotonic ns."""


class AttemptEnds(Protocol):
    """Acts on the end of an attempt."""

    def on_success(self, message: Message, now: int) -> None:
        """The handler returned."""

    def on_failure(self, message: Message, error: BaseException) -> None:
        """The handler raised, or timed out."""

    def on_not_started(self, message: Message) -> None:
        """The lease lapsed just before the handler's start."""

    def on_pause(self, message: Message, pause: Pause) -> None:
        """The handler asked for a pause of the topic; the message wasn't handled."""
