"""Decodes the body of a message before its handler starts. A body that doesn't fit is a dead letter at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.core.message.body_codec import (
    BodyError,
    bare_decoder_for,
    decoder_for,
    has_fields,
    is_msgpack,
)
from evenlane.engine.core.message.handler_exceptions import Reject

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.message import Message


class Unfit(Reject):
    """The body isn't of the type that the handler asks for."""

    hides_origin = True  # it is raised here, which doesn't help a user


class BodyReader:
    """Decodes bodies as one type: JSON, or msgpack if the content type says so. Raises ConfigError for a type that
    can't be decoded.
    """

    def __init__(self, body: Any) -> None:
        self._from_json, self._from_msgpack = decoder_for(body), decoder_for(body, msgpack=True)
        self.decode: Callable[[bytes], Any] = bare_decoder_for(body) if has_fields(body) else _undecided
        """Decodes JSON without a look at the headers, the quickest way; whatever it raises, `read` decides."""

    def read(self, message: Message) -> Any:
        """The decoded body. Raises Reject if it doesn't fit."""
        decode = self._from_msgpack if is_msgpack(message.headers) else self._from_json
        try:
            return decode(message.body)
        except BodyError as error:
            raise Unfit(str(error)) from error


def _undecided(_body: bytes) -> Any:
    """Bytes that are a number in JSON can be another one in msgpack, so the headers decide."""
    raise BodyError
