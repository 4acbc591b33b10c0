"""What the workers need of the parts above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message, Pause


class MessageSource(Protocol):
    """Where workers get their messages."""

    def next(self, now: int) -> list[Message] | None:
        """Messages of one queue that may start together, most often one; None if none may. `now` is monotonic ns."""


class AttemptEnds(Protocol):
    """Which part acts on the end of an attempt."""

    def succeeded(self, message: Message, now: int) -> None:
        """Its handler has returned."""

    def failed(self, message: Message, error: BaseException) -> None:
        """Its handler has raised, or timed out."""

    def not_started(self, message: Message) -> None:
        """The lease was over in the moment before the handler's start."""

    def paused(self, message: Message, pause: Pause) -> None:
        """Its handler asks for a pause of the topic; it wasn't handled."""
