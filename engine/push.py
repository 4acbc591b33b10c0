"""The built-in handler for nodes that only push: `--handler evenlane.engine.push:handle`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.message.handler_exceptions import Pause

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message

_PAUSE_S = 10.0


async def handle(message: Message) -> None:
    """Pause a topic that has no `push`: nothing else on this node can handle its messages."""
    reason = f"topic {message.project} has no push, and this node has no other handler"
    raise Pause(_PAUSE_S, reason)
