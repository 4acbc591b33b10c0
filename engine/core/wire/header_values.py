"""Reads the headers that Evenlane acts on: a valid value, or why it is invalid. Pure.

Anyone may publish to a lane, so nothing here raises. A message with an invalid due time or expiry is dead-lettered,
since that header decides when the message is due or gone. Any other invalid value counts as absent, and is logged.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from evenlane.engine.core.wire import headers as h

if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_ATTEMPTS = 1_000_000
_FIRST = 10**17  # ns: in 1973; any instant of today is above it in ns, and below it in any other unit
_LAST = (1 << 63) - 1
_UNITS = ((10**8, 10**11, "seconds"), (10**11, 10**14, "milliseconds"), (10**14, _FIRST, "microseconds"))
_SHOWN = 80  # characters


_PLAIN = re.compile(
    rb"\r\nEvenlane-(?:(?:Due|Expires|Put): [1-8][0-9]{17,18}|Attempt: [1-9][0-9]{0,5}|Key: [!-~]{1,256}"
    rb"|(?:Origin|Recorded): [!-~]*)(?=\r\n)"
)
"""Each of our headers in its usual form. If all are in this form none is checked further, which would take five times
as long.
"""


class Refusal(NamedTuple):
    """The reason why a header's value is invalid. `fatal`: the message can't be handled as its sender intends."""

    header: str
    value: str
    reason: str
    fatal: bool

    def __str__(self) -> str:
        return f"{self.header} {self.value!r} is not valid: {self.reason}"


def attempt(block: bytes) -> int:
    """The number of the attempt; 1 if there is no valid header."""
    number = h.number(block, h.ATTEMPT, 1)
    return number if 1 <= number <= _MOST_ATTEMPTS else 1


def read_instant(block: bytes, name: str, default: int) -> int:
    """The time under this name, unix ns; `default` if it is absent or invalid."""
    number = h.number(block, name, default)
    return number if _FIRST <= number <= _LAST else default


def key(block: bytes) -> str | None:
    """The key; None if it is absent or invalid."""
    text = h.value(block, h.KEY)
    return text if text is not None and names.is_key(text) else None


def own_id(block: bytes, project: str) -> str | None:
    """The id that the message was put under, the same for all its copies. None if it is absent or invalid: it becomes
    part of the ids of copies, and a header of pushes.
    """
    given = h.value(block, h.ID)
    if given is None:
        return None
    own = given.removeprefix(f"{project}:")
    if h.value(block, h.ORIGIN) is not None and own.count(":") >= _PARTS_OF_A_COPY:
        own = own.rsplit(":", _PARTS_OF_A_COPY)[0]
    return own if names.is_key(own) else None


def message_id(project: str, stream: str, sequence: int, at: int, block: bytes) -> str:
    """The id of a message, the same over all attempts: `own_id`, or one made from its original location
    (`Message.id`).
    """
    return own_id(block, project) or f"{stream}-{sequence}-{at}"


_PARTS_OF_A_COPY = 3  # stream, sequence and attempt, behind the id


def refusals(block: bytes) -> list[Refusal]:
    """The invalid headers of a message, fatal ones first."""
    if len(_PLAIN.findall(block)) == block.count(h.PREFIX):
        return []
    found = []
    for name, why, fatal in _JUDGED:
        text = h.value(block, name)
        if text is not None and (reason := why(text)):
            shown = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
            found.append(Refusal(name, shown, reason, fatal))
    return found


def _no_instant(text: str) -> str:
    """The reason why the text isn't a time in ns since 1970; empty if it is one."""
    if not (text.isascii() and text.isdigit()):
        return "it must be a whole number of nanoseconds since 1970"
    number = int(text) if len(text) < 20 else _LAST + 1
    if number > _LAST:
        return "it must be nanoseconds since 1970, and this is later than 2262"
    if number >= _FIRST:
        return ""
    unit = next((unit for low, high, unit in _UNITS if low <= number < high), None)
    return f"it must be nanoseconds since 1970{f', and looks like {unit}' if unit else ''}"


def _no_attempt(text: str) -> str:
    plain = text.isascii() and text.isdigit() and len(text) < 20
    return "" if plain and 1 <= int(text) <= _MOST_ATTEMPTS else f"it must be a number from 1 to {_MOST_ATTEMPTS}"


def _no_key(text: str) -> str:
    return "" if names.is_key(text) else "it must be 1 to 256 characters, none of them a control character"


_JUDGED: tuple[tuple[str, Callable[[str], str], bool], ...] = (
    (h.DUE, _no_instant, True),
    (h.EXPIRES, _no_instant, True),
    (h.PUT, _no_instant, False),
    (h.ATTEMPT, _no_attempt, False),
    (h.KEY, _no_key, False),
)
