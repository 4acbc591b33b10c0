"""What the handlers of an application share while it runs."""

from __future__ import annotations

import asyncio
from typing import Any


class Scope:
    """Shared by the calls of one application. `state` is what its lifespan has yielded.

    Invariant: `_loop`, the node's event loop, is set while the application runs.
    """

    def __init__(self) -> None:
        self.state: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self) -> None:
        """Call it in the node's event loop."""
        self._loop = asyncio.get_running_loop()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None
        return self._loop

    def close(self) -> None:
        """No effect if it isn't open."""
        self._loop = self.state = None
