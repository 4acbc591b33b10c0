"""A handler whose message is decoded first. Compiled, because it runs for each message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message


class DecodingHandler:
    """Decodes the body, and calls `handler`. `decode` may raise anything; `read` then tries again, and its errors
    count.
    """

    def __init__(
        self, handler: Callable[[Any], Any], decode: Callable[[bytes], Any], read: Callable[[Any], Any]
    ) -> None:
        self._handler, self._decode, self._read = handler, decode, read

    def handle(self, message: Message) -> Any:
        """Return what the handler returns.

        For an async handler this is its coroutine, as another coroutine around that would cost as much as the decoding.
        It isn't `__call__`, because Python calls a method faster than an object.
        """
        try:
            message.decoded = self._decode(message.body)
        except Exception:  # noqa: BLE001 - `read` says what is wrong
            message.decoded = self._read(message)
        return self._handler(message)
