"""Formats dead letters for people. Control characters in tenants' text are replaced."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from evenlane.engine.base.durations import format_instant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.admin.dead_letters.by_error import ErrorGroup
    from evenlane.engine.core.message.dead_letter import DeadLetter

LIST_HEADER = ("SEQ", "DIED", "ATTEMPTS", "PRIORITY", "GROUP", "KEY", "BYTES", "ID", "WHY")
ERRORS_HEADER = ("COUNT", "FIRST", "LAST", "KEY", "WHY")
_LONGEST = 200


def line(dead_letter: DeadLetter) -> tuple[str, ...]:
    """Return a dead letter's row under `LIST_HEADER`."""
    priority, group = (dead_letter.place.priority, str(dead_letter.place.group)) if dead_letter.place else ("-", "-")
    return (
        str(dead_letter.sequence), format_instant(dead_letter.died_at)[:19] + "Z", str(dead_letter.attempts),
        _plain(priority), group, _plain(dead_letter.key or "-"), str(dead_letter.size), _plain(dead_letter.id),
        _plain(_why(dead_letter))[:_LONGEST],
    )  # fmt: skip


def error_line(group: ErrorGroup) -> tuple[str, ...]:
    """Return the row of an error under `ERRORS_HEADER`."""
    why = f"{group.reason}: {group.error}" if group.error else group.reason
    first, last = (f"{format_instant(at)[:19]}Z" for at in (group.first, group.last))
    return str(group.count), first, last, group.key, _plain(why)[:_LONGEST]


def dead_letter_fields(dead_letter: DeadLetter) -> Iterator[tuple[str, str]]:
    """Yield names and values of everything except the body."""
    yield "seq", str(dead_letter.sequence)
    yield "id", _plain(dead_letter.id)
    yield "reason", _plain(dead_letter.reason)
    yield "error", _plain(dead_letter.error)
    yield "attempts", str(dead_letter.attempts)
    yield "origin", _plain(dead_letter.origin)
    yield "queue", _queue(dead_letter)
    yield "key", _plain(dead_letter.key or "-")
    yield "put", format_instant(dead_letter.put_at)
    yield "died", format_instant(dead_letter.died_at)
    yield "size", f"{dead_letter.size} bytes"
    for name, text in dead_letter.headers.items():
        yield "header", f"{_plain(name)}: {_plain(text)}"


def body_line(dead_letter: DeadLetter) -> str:
    """Return the body: text as it is, otherwise base64, also for text with control characters."""
    try:
        text = dead_letter.body.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(sign.isprintable() or sign in "\n\t\r" for sign in text):
        return text
    return b64encode(dead_letter.body).decode()


def _queue(dead_letter: DeadLetter) -> str:
    place = dead_letter.place
    if place is None:
        return f"none: {_plain(dead_letter.subject)!r}"
    return f"priority {_plain(place.priority)}, group {place.group}, partition {place.partition}"


def _why(dead_letter: DeadLetter) -> str:
    return f"{dead_letter.reason}: {dead_letter.error}" if dead_letter.error else dead_letter.reason


def _plain(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)
