"""Parses request parameters strictly: unknown ones are rejected, never ignored."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from evenlane.engine.admin.dead_letters.by_error import ALL, Selection
from evenlane.engine.base.names import check_subscription
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import ConfigError
from evenlane.engine.http.dead_letters import MOST_LISTED

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from starlette.requests import Request

_MOST_BYTES = 4_096
_LISTED = 50
_LAST = 2**63 - 1


def parse_params(request: Request, known: Collection[str]) -> dict[str, str]:
    """Return the query parameters. Raises ConfigError for an unknown or repeated one."""
    if b"%2f" in request.scope.get("raw_path", b"").lower():  # it has already changed the path
        raise ConfigError("a name can't contain a /, however it is encoded")
    found: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name not in known:
            there = f": the parameters are {', '.join(sorted(known))}" if known else " here"
            raise ConfigError(f"there is no parameter {name!r}{there}")
        if name in found:
            raise ConfigError(f"{name} is given twice")
        found[name] = value
    return found


def flag(given: Mapping[str, str], name: str) -> bool:
    """Return a parameter that is true or false; it is false if it wasn't given. Raises ConfigError."""
    text = given.get(name, "false")
    if text not in {"true", "false"}:
        raise ConfigError(f"{name} must be true or false, not {text[:20]!r}")
    return text == "true"


def subscription(given: Mapping[str, str]) -> str | None:
    """Return the subscription that a request names; empty: the unnamed one, None: that of the node. Raises
    InvalidName.
    """
    name = given.get("subscription")
    return check_subscription(name) if name else name


def limit(given: Mapping[str, str]) -> int:
    """Return the number of dead letters to list. Raises ConfigError."""
    text = given.get("limit", str(_LISTED))
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and 1 <= int(text) <= MOST_LISTED):
        raise ConfigError(f"limit must be a whole number from 1 to {MOST_LISTED}, not {text[:20]!r}")
    return int(text)


def sequence(text: str) -> int:
    """Parse a sequence. Raises ConfigError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and 1 <= int(text) <= _LAST):
        raise ConfigError(f"a dead letter's sequence must be a whole number from 1 on, not {text[:30]!r}")
    return int(text)


class Chosen(NamedTuple):
    """The dead letters that a request is about: one, or a selection."""

    sequence: int | None
    selection: Selection

    def fields(self) -> dict[str, int | str | None]:
        """Describe it for the audit log."""
        if self.sequence is not None:
            return {"seq": self.sequence}
        return {"error_key": self.selection.error or "all", "until": self.selection.until}


class _Choice(msgspec.Struct, forbid_unknown_fields=True):
    seq: int | None = None
    all: bool = False
    error: str | None = None
    until: int | None = None


_CHOICES = '{"seq": SEQ} for one dead letter, {"error": KEY} for those with this error, {"all": true} for all'


async def chosen(request: Request) -> Chosen:
    """Return the dead letters that the body names. Raises ConfigError."""
    try:
        choice = msgspec.json.decode(await _body(request), type=_Choice)
    except UNREADABLE as error:
        raise ConfigError(f"the body must be {_CHOICES}: {error}") from error
    if (choice.seq is not None) + choice.all + (choice.error is not None) != 1:
        raise ConfigError(f"the body must name one of the three: {_CHOICES}")
    if choice.seq is not None:
        if choice.until is not None:
            raise ConfigError("until is for several dead letters, not for the one that seq names")
        return Chosen(sequence(str(choice.seq)), ALL)
    until = None if choice.until is None else sequence(str(choice.until))
    if choice.error is None and until is None:
        return Chosen(None, ALL)
    return Chosen(None, Selection(None if choice.error is None else _key(choice.error), until))


def error_key(given: Mapping[str, str]) -> str | None:
    """Return the key of the error to list, None for all. Raises ConfigError."""
    key = given.get("error")
    return None if key is None else _key(key)


def _key(text: str) -> str:
    if re.fullmatch(r"[0-9a-f]{1,64}", text) is None:
        raise ConfigError(f"error must be the key of an error, as /api/dead/PROJECT/errors lists it, not {text[:30]!r}")
    return text


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise ConfigError(f"the body is longer than {_MOST_BYTES} bytes")
    return body
