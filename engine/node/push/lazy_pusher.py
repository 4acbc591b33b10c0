"""A pusher that is created for the first message that must be pushed. Most nodes push nothing, and importing its HTTP
client takes a fifth of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.aio.lazy import Lazy

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.node.push.pusher import Pusher


class LazyPusher:
    """Call `check`, then `push`, finally `close`. `inject` adds trace headers to those of a push."""

    def __init__(self, settings: Settings, inject: Callable[[dict[str, str]], None]) -> None:
        self._settings = settings
        self._pusher: Lazy[Pusher] = Lazy(
            "evenlane.engine.node.push.pusher", lambda module: module.Pusher(settings, inject=inject)
        )

    async def check(self) -> None:
        """Raises ConfigError for unreadable certificates."""
        if self._settings.push_ca is not None:
            await self._pusher.get()

    async def push(self, message: Message) -> None:
        """See `Pusher`."""
        await (self._pusher.made or await self._pusher.get())(message)

    async def close(self) -> None:
        if self._pusher.made is not None:
            await self._pusher.made.close()
