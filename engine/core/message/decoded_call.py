"""The call of a handler whose message is decoded first. Compiled, because it runs for each message."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message


class DecodedCall:
    """Decodes the body, and calls the handler. It isn't a coroutine, because that would cost as much as the decoding:
    an async handler's coroutine is returned.

    `decode` may raise anything; `read` then tries again, and its errors count.
    """

    def __init__(
        self, handler: Callable[[Any], Any], decode: Callable[[bytes], Any], read: Callable[[Any], Any]
    ) -> None:
        self._handler, self._decode, self._read = handler, decode, read

    def __call__(self, message: Message) -> Any:
        try:
            message.decoded = self._decode(message.body)
        except Exception:  # noqa: BLE001 - `read` says what is wrong
            message.decoded = self._read(message)
        return self._handler(message)
