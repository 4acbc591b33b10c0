"""Formats dead letters for people. Control characters in tenants' text are replaced."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.core.message.dead_letter import DeadLetter

LIST_HEADER = ("SEQ", "DIED", "ATTEMPTS", "PRIORITY", "GROUP", "KEY", "BYTES", "ID", "WHY")
_LONGEST = 200


def line(letter: DeadLetter) -> tuple[str, ...]:
    """Return a dead letter's row under `LIST_HEADER`."""
    from evenlane.engine.core.message.dead_letter import instant

    priority, group = (letter.place.priority, str(letter.place.group)) if letter.place else ("-", "-")
    return (
        str(letter.sequence), instant(letter.died_at)[:19] + "Z", str(letter.attempts), _plain(priority), group,
        _plain(letter.key or "-"), str(letter.size), _plain(letter.id), _plain(_why(letter))[:_LONGEST],
    )  # fmt: skip


def dead_letter_fields(letter: DeadLetter) -> Iterator[tuple[str, str]]:
    """Yield names and values of everything except the body."""
    from evenlane.engine.core.message.dead_letter import instant

    yield "seq", str(letter.sequence)
    yield "id", _plain(letter.id)
    yield "reason", _plain(letter.reason)
    yield "error", _plain(letter.error)
    yield "attempts", str(letter.attempts)
    yield "origin", _plain(letter.origin)
    yield "queue", _queue(letter)
    yield "key", _plain(letter.key or "-")
    yield "put", instant(letter.put_at)
    yield "died", instant(letter.died_at)
    yield "size", f"{letter.size} bytes"
    for name, text in letter.headers.items():
        yield "header", f"{_plain(name)}: {_plain(text)}"


def body_line(letter: DeadLetter) -> str:
    """Return the body: text as it is, otherwise base64, also for text with control characters."""
    try:
        text = letter.body.decode()
    except UnicodeDecodeError:
        text = "\0"
    if all(sign.isprintable() or sign in "\n\t\r" for sign in text):
        return text
    return b64encode(letter.body).decode()


def _queue(letter: DeadLetter) -> str:
    if letter.place is None:
        return f"none: {_plain(letter.subject)!r}"
    return f"priority {_plain(letter.place.priority)}, group {letter.place.group}, partition {letter.place.partition}"


def _why(letter: DeadLetter) -> str:
    return f"{letter.reason}: {letter.error}" if letter.error else letter.reason


def _plain(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)
