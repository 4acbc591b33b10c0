"""Encodes and decodes the header block of a message: `NATS/1.0`, then `Name: value` lines. No library is used, because
at a hundred thousand messages per second most headers are never read.
"""

import re
from collections.abc import Mapping
from typing import Any

from evenlane.engine.errors import InvalidName

FIRST_LINE = b"NATS/1.0\r\n"
_END = b"\r\n"
PREFIX = b"\r\nEvenlane-"
"""The prefix of each of our headers, with the preceding line break."""

ID = "Nats-Msg-Id"
KEY = "Evenlane-Key"
DUE = "Evenlane-Due"
EXPIRES = "Evenlane-Expires"
ATTEMPT = "Evenlane-Attempt"
PUT = "Evenlane-Put"
ORIGIN = "Evenlane-Origin"
RECORDED = "Evenlane-Recorded"  # a copy of a message that was recorded in flight before it started
# of a dead letter
REASON = "Evenlane-Reason"
ERROR = "Evenlane-Error"
SUBJECT = "Evenlane-Subject"

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\ud800-\udfff]")
_RESERVED = ("nats-", "evenlane-")


def encode(values: Mapping[str, str]) -> bytes:
    """The block for these headers, b"" for none. Names and values must be checked before."""
    if not values:
        return b""
    lines = "".join([f"{name}: {value}\r\n" for name, value in values.items()])
    return b"%b%b\r\n" % (FIRST_LINE, lines.encode())


def value(block: bytes, name: str) -> str | None:
    """One header's value, or None; cheap when it is absent."""
    if not block:
        return None
    start = block.find(b"\r\n%b:" % name.encode())
    if start < 0:
        return None
    start += len(name) + 3
    end = block.find(_END, start)  # the server doesn't check blocks
    return block[start : end if end >= 0 else None].strip().decode("utf-8", "replace")


def number(block: bytes, name: str, default: int) -> int:
    """A header's value as an integer; `default` if it is absent or not a number."""
    return _number(value(block, name), default)


def _number(text: str | None, default: int) -> int:
    return int(text) if text is not None and len(text) < 20 and text.isascii() and text.isdigit() else default


def decode(block: bytes) -> dict[str, str]:
    """All headers of a block; malformed lines are skipped."""
    found: dict[str, str] = {}
    for line in block.split(_END)[1:]:
        name, separator, text = line.partition(b":")
        if separator:  # (of two headers with one name the first counts, as in `value`)
            found.setdefault(name.strip().decode("utf-8", "replace"), text.strip().decode("utf-8", "replace"))
    return found


def decode_user(block: bytes) -> dict[str, str]:
    """The headers that the producer set itself: all but `Nats-*` and `Evenlane-*`."""
    if not block:
        return {}
    return {name: text for name, text in decode(block).items() if not name.lower().startswith(_RESERVED)}


def select_carried(found: Mapping[str, str]) -> dict[str, str]:
    """The headers that a message's copies keep, in a form that can be sent: none of the server's, which might make it
    refuse the copy (`Nats-Expected-Stream`), and nothing that would break the block.
    """
    return {
        name: _CONTROL.sub(" ", text)
        for name, text in found.items()
        if _NAME.fullmatch(name) and not name.lower().startswith("nats-")
    }


def read_added(block: bytes, name: str) -> str | None:
    """The value of a header that the server has added behind the sender's own headers, which may include the same name;
    None if absent.
    """
    start = block.rfind(b"\r\n%b: " % name.encode())
    return value(block[start:], name) if start >= 0 else None


def read_added_number(block: bytes, name: str, default: int) -> int:
    """`read_added` as an integer; `default` if it is absent or not a number."""
    return _number(read_added(block, name), default)


def check_user(values: Mapping[Any, Any]) -> None:
    """Raises InvalidName for a header that can't be sent, or that users may not set. Checks the types, too: users
    may pass any object.
    """
    for name, text in values.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise InvalidName(f"header {name!r} is not a valid name: letters, digits and !#$%&'*+-.^_`|~")
        if name.lower().startswith(_RESERVED):
            raise InvalidName(f"header {name!r} is reserved: choose a name without Nats- or Evenlane-")
        if not isinstance(text, str) or _CONTROL.search(text):
            raise InvalidName(f"header {name!r} has a value that is not a single line of text")
