"""The pusher, made when the first message is to be pushed: most nodes push nothing, and its HTTP client is large."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.message import Message
    from engine.push.pusher import Pusher
    from engine.settings import Settings


class Pushers:
    """One node's."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._made: Pusher | None = None

    async def push(self, message: Message) -> None:
        """As `Pusher`; raises ConfigError, too, for a file of certificates that can't be read."""
        if self._made is None:
            from engine.push.pusher import Pusher  # noqa: PLC0415 - see above

            self._made = Pusher(self._settings)
        await self._made(message)

    async def close(self) -> None:
        if self._made is not None:
            await self._made.close()
