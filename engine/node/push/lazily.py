"""The pusher, made when the first message is to be pushed: most nodes push nothing, and its HTTP client is large."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.node.push.pusher import Pusher


class Pushers:
    """One node's."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: Pusher | None = None
        self._making = asyncio.Lock()

    async def check(self) -> None:
        """Raises ConfigError for certificates that can't be read."""
        if self._settings.push_ca is not None:
            await self._pusher()

    async def push(self, message: Message) -> None:
        """As `Pusher`."""
        await (self._made or await self._pusher())(message)

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()

    async def _pusher(self) -> Pusher:
        async with self._making:
            if self._made is None:
                module = await asyncio.to_thread(
                    import_module, "evenlane.engine.node.push.pusher"
                )  # a fifth of a second
                self._made = module.Pusher(self._settings)
            return self._made
