"""What the handlers of an application share while it runs."""

from __future__ import annotations

import asyncio
from typing import Any

from evenlane.engine.node.handlers.threads import Threads


class Scope:
    """Shared by the calls of one application. `state` is what its lifespan has yielded. `loop` is the node's event
    loop, and `threads` run plain functions that an async middleware surrounds.

    Invariant: `loop` and `threads` are set while the application runs.
    """

    def __init__(self) -> None:
        self.state: Any = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.threads: Threads | None = None

    def open(self, threads: int) -> None:
        """Call it in the node's event loop. At most so many threads run at once."""
        self.loop, self.threads = asyncio.get_running_loop(), Threads(threads)

    def close(self) -> None:
        """No effect if it isn't open."""
        if self.threads is not None:
            self.threads.close()
        self.loop = self.threads = self.state = None
