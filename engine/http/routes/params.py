"""Parses request parameters strictly: unknown ones are rejected, never ignored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

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


def limit(request: Request) -> int:
    """Return the number of dead letters to list. Raises ConfigError."""
    text = parse_params(request, {"limit"}).get("limit", str(_LISTED))
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and 1 <= int(text) <= MOST_LISTED):
        raise ConfigError(f"limit must be a whole number from 1 to {MOST_LISTED}, not {text[:20]!r}")
    return int(text)


def sequence(text: str) -> int:
    """Parse a sequence. Raises ConfigError."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and 1 <= int(text) <= _LAST):
        raise ConfigError(f"a dead letter's sequence must be a whole number from 1 on, not {text[:30]!r}")
    return int(text)


class _Replay(msgspec.Struct, forbid_unknown_fields=True):
    seq: int | None = None
    all: bool = False


async def replay_of(request: Request) -> int | None:
    """Return the sequence of one dead letter, None for all. Raises ConfigError."""
    parse_params(request, ())
    try:
        replay = msgspec.json.decode(await _body(request), type=_Replay)
    except UNREADABLE as error:
        raise ConfigError(f'the body must be {{"seq": SEQ}} or {{"all": true}}: {error}') from error
    if (replay.seq is None) != replay.all:
        raise ConfigError('the body must name one of the two: {"seq": SEQ} for one dead letter, {"all": true} for all')
    return None if replay.seq is None else sequence(str(replay.seq))


async def _body(request: Request) -> bytes:
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BYTES:
            raise ConfigError(f"the body is longer than {_MOST_BYTES} bytes")
    return body
