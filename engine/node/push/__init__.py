"""HTTP push: the handler that comes with the box. It POSTs each message to the address in its topic's `push`.

`pusher.Pusher` does it; `handle` is for nodes that do nothing else. What endpoints can rely on: docs/push.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.message.message import Pause

if TYPE_CHECKING:
    from evenlane.engine.core.message.message import Message

_LEFT_ALONE_S = 10.0


async def handle(message: Message) -> None:
    """For `--handler evenlane.engine.node.push:handle`: what a topic without `push` gets on a node that only pushes."""
    reason = f"topic {message.project} has no push, and this node has no other handler"
    raise Pause(_LEFT_ALONE_S, reason)
