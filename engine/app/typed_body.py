"""Decodes the body of a message before its handler starts. A body that doesn't fit is a dead letter at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.core.message.body_codec import BodyError, decoder_for, is_msgpack
from evenlane.engine.core.message.handler_exceptions import Reject

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message


def body_reader(body: Any) -> Callable[[Message], Any]:
    """Return a function that decodes a message's body as this type: JSON, or msgpack if the content type says so. It
    raises Reject for a body that doesn't fit. Raises ConfigError for a type that can't be decoded.
    """
    from_json, from_msgpack = decoder_for(body), decoder_for(body, msgpack=True)

    def read(message: Message) -> Any:
        try:
            if b"msgpack" in message.raw_headers and is_msgpack(message.headers):
                return from_msgpack(message.body)
            return from_json(message.body)
        except BodyError as error:
            raise Reject(str(error)) from error

    return read
