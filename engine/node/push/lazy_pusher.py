"""The pusher of a node, made for the first message that must be pushed. Most nodes push nothing, and its HTTP client
takes a fifth of a second to import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.aio.lazy import Lazy

if TYPE_CHECKING:
    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.node.push.pusher import Pusher


class LazyPusher:
    """`check`, `push`, then `close`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pusher: Lazy[Pusher] = Lazy("evenlane.engine.node.push.pusher", lambda module: module.Pusher(settings))

    async def check(self) -> None:
        """Raises ConfigError for certificates that can't be read."""
        if self._settings.push_ca is not None:
            await self._pusher.get()

    async def push(self, message: Message) -> None:
        """As `Pusher`."""
        await (self._pusher.made or await self._pusher.get())(message)

    async def close(self) -> None:
        if self._pusher.made is not None:
            await self._pusher.made.close()
