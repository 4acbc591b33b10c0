"""Messages as JSON objects, one a line: for files (`evenlane put --file`) and for HTTP."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from evenlane.engine.base.durations import parse_duration, parse_instant
from evenlane.engine.errors import ConfigError
from evenlane.engine.producer.put import Put
from evenlane.quota.topics.strict_json import BOM, has_bom

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class JsonOptions(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """Options of a put. `delay` and `ttl` are seconds or text like 5s; `due` is RFC 3339."""

    priority: str | None = None
    key: str | None = None
    group: int | None = None
    delay: float | str | None = None
    due: str | None = None
    ttl: float | str | None = None
    id: str | None = None


class JsonMessage(JsonOptions, forbid_unknown_fields=True, kw_only=True, gc=False):
    """A message without its project. It has either `body`, which is text, or `body_base64`."""

    body: str | None = None
    body_base64: str | None = None
    headers: dict[str, str] | None = None


class JsonLine(JsonMessage, forbid_unknown_fields=True, kw_only=True, gc=False):
    """One line of a file."""

    project: str


def parse_line(raw: bytes) -> Put:
    """Parse a line. Raises ConfigError with the error in the line."""
    line = decode(raw, _lines)
    return to_put(line.project, body_of(line), line, line.headers)


_lines = msgspec.json.Decoder(JsonLine)


def decode(raw: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """Decode a JSON object. Raises ConfigError, in words for its author."""
    if has_bom(raw):
        raise ConfigError(f"it {BOM}")
    try:
        return decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise ConfigError(explain(error)) from None


def to_put(project: str, body: bytes, options: JsonOptions, headers: dict[str, str] | None = None) -> Put:
    """Build the put. Raises ConfigError for an invalid time."""
    return Put(
        project,
        body,
        options.priority,
        options.key,
        options.group,
        _time("delay", options.delay, parse_duration),
        _time("due", options.due, parse_instant),
        _time("ttl", options.ttl, parse_duration),
        options.id,
        headers,
    )


def body_of(message: JsonMessage) -> bytes:
    """Return the body. Raises ConfigError unless there is exactly one valid body."""
    if (message.body is None) == (message.body_base64 is None):
        raise ConfigError("it needs either `body`, a string, or `body_base64`")
    if message.body_base64 is None:
        try:
            return str(message.body).encode()
        except UnicodeEncodeError:
            raise ConfigError("`body` can't be encoded in UTF-8: write it as `body_base64`") from None
    try:
        return b64decode(message.body_base64, validate=True)
    except (Base64Error, ValueError):
        raise ConfigError("`body_base64` is not base64") from None


def explain(error: Exception) -> str:
    """Translate an error of msgspec for the author of the JSON."""
    text = str(error)
    for theirs, ours in _WORDS:
        text = text.replace(theirs, ours)
    return text


_WORDS = (
    ("JSON is malformed", "it isn't JSON"),
    ("Input data was truncated", "it isn't JSON: it ends too early"),
    ("Object missing required field", "it lacks the field"),
    ("Object contains unknown field", "it has the unknown field"),
    ("Expected `object`, got", "it must be a JSON object, not"),
    ("Expected", "expected"),
    (" | null`", "`"),
    (" - at `$.", " in `"),
    ("[...]`", "`"),
    (" - at `$`", ""),
)


def _time(field: str, value: Any, parse: Callable[[Any], T]) -> T | None:
    try:
        return None if value is None else parse(value)
    except ConfigError as error:
        raise ConfigError(f"`{field}` {error}") from None
