"""A NATS protocol parser that delivers the messages of chosen subscriptions as raw bytes.

nats-py's own parser costs about as much as the rest of a message's way through the engine: it matches a regular
expression at each step, deletes from the front of one growing buffer, and decodes every header. This one slices the
received chunk at known lengths. nats-py's own subscriptions (requests, its API) still get their messages through
`Client._process_msg`. See docs/adr/0002.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import structlog
from nats.errors import Error, ProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

_log = structlog.get_logger(__name__)

_M, _H, _P, _I, _MINUS, _PLUS = b"MHPI-+"
_FULL = 32 << 10  # bytes; after a chunk of this size, more data is already waiting
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"\s]+)"', re.IGNORECASE)
_LONGEST_LINE = 1 << 20  # bytes; INFO of a large cluster is long, but a NATS server sends nothing longer


class LeanParser:
    """Replaces `nats.protocol.parser.Parser` in a client (`nc._ps`).

    Invariant: at most one of `_rest` and `_parts` has data. `_rest` is an incomplete control line. `_parts` are the
    chunks of an incomplete message, of which `_missing` bytes are still to come.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        # by subscription id as in the protocol line: called with (subject, reply, header block or b"", body)
        self.raw: dict[bytes, Callable[[bytes, bytes, bytes, bytes], None]] = {}
        # called with "publish" or "subscription", and the subject for which the user has no permission
        self.on_denied: Callable[[str, str], None] = lambda _what, _subject: None
        self.reset()

    def reset(self) -> None:
        """Drop a half-read message: its connection is gone."""
        self._rest = b""
        self._parts: list[bytes] = []
        self._missing = 0

    async def parse(self, data: bytes = b"") -> None:
        """Parse a chunk as read from the socket. Raises ProtocolError for bytes that no NATS server sends."""
        await self._take(data)
        if len(data) >= _FULL:  # reads follow without a pause: let other callbacks of the event loop run in between
            await asyncio.sleep(0)

    async def _take(self, data: bytes) -> None:
        if self._missing:
            # A large message arrives in many chunks: joining them once keeps the cost linear.
            self._parts.append(data)
            self._missing -= len(data)
            if self._missing > 0:
                return
            data = b"".join(self._parts)
            self._parts.clear()
            self._missing = 0
        elif self._rest:
            data = self._rest + data
            self._rest = b""
        await self._split(data)

    async def _split(self, data: bytes) -> None:  # noqa: C901, PLR0912 - a call costs 1 % of a message
        position, end = 0, len(data)
        find, raw = data.find, self.raw
        while position < end:
            newline = find(b"\n", position)  # (searching one byte takes half the time of two)
            if newline < 0:
                if end - position > _LONGEST_LINE:
                    raise ProtocolError("nats: a control line without end")
                break
            kind = data[position]
            body = newline + 1
            if kind == _H or kind == _M:  # noqa: PLR1714, SIM109 - a tuple would be built for each message
                words = data[position:newline].split()
                try:
                    if kind == _H and len(words) == 6:  # messages of feeds
                        _, subject, sid, reply, of_headers, of_all = words
                        block, stop = body + int(of_headers), body + int(of_all)
                    else:
                        subject, sid, reply, block, stop = _sizes(words, body)
                except (ValueError, IndexError) as error:
                    raise ProtocolError("nats: malformed message line") from error
                if not body <= block <= stop:
                    raise ProtocolError("nats: a message of impossible size")
                if stop + 2 > end:
                    self._missing = stop + 2 - end
                    self._parts.append(data[position:])
                    return
                callback = raw.get(sid)
                if callback is not None:
                    try:
                        callback(subject, reply, data[body:block], data[block:stop])
                    except Exception:  # noqa: BLE001 - an exception would end nats-py's reading loop, and all else
                        _log.exception("a message could not be taken in", subject=subject[:200])
                else:
                    await self._pass_on(sid, subject, reply, data[body:block], data[block:stop])
                position = stop + 2
            else:
                await self._control(kind, data[position:newline])
                position = body
        self._rest = data[position:]

    async def _pass_on(self, sid: bytes, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        """Deliver to a subscription of nats-py itself."""
        if not sid.isdigit():
            raise ProtocolError("nats: malformed message line")
        await self._client._process_msg(int(sid), subject, reply, body, block or None)

    async def _control(self, kind: int, line: bytes) -> None:
        client = self._client
        if kind == _P:
            if line.startswith(b"PING"):
                await client._process_ping()
            else:
                await client._process_pong()
        elif kind == _I:
            try:
                greeting = json.loads(line[4:])
            except ValueError as error:
                raise ProtocolError("nats: malformed INFO") from error
            await client._process_info(greeting)
        elif kind == _MINUS:
            await self._error(line[4:].strip().decode("utf-8", "replace"))
        elif kind != _PLUS:
            raise ProtocolError(f"nats: unknown protocol {line[:40]!r}")

    async def _error(self, text: str) -> None:
        if (denied := _DENIED.search(text)) is not None:
            self.on_denied(denied[1].lower(), denied[2])
        elif "permissions" in text.lower():
            await self._client._process_err(text.lower())
        else:
            # nats-py would close finally, even after another password was set on the server. A node must reconnect.
            await self._client._process_op_err(Error(f"nats: {text.lower()}"))


def _sizes(words: list[bytes], body: int) -> tuple[bytes, bytes, bytes, int, int]:
    """The fields of a message's protocol line: subject, sid, reply, and the ends of its headers and its body. Raises
    ValueError or IndexError for a malformed line.
    """
    has_headers = words[0] == b"HMSG"
    sizes = words[-2:] if has_headers else words[-1:]
    stop, block = body + int(sizes[-1]), body + (int(sizes[0]) if has_headers else 0)
    reply = words[3] if len(words) - len(sizes) == 4 else b""
    return words[1], words[2], reply, block, stop
