"""Renders exceptions for logs and dead letters: one line of bounded length."""

from __future__ import annotations

from pathlib import Path

_LONGEST_TEXT = 4_096  # characters of an exception's text
_LONGEST = 200  # characters of text from outside


def describe_error(error: BaseException) -> str:
    """Type and text of a handler's exception; safe even if its `__str__` fails."""
    try:
        text = str(error)[:_LONGEST_TEXT]
    except BaseException:  # noqa: BLE001 - one tenant's odd exception must not end the node
        text = "(its text isn't available)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def failure(error: BaseException) -> str:
    """The exception's type, and its text if that is of our own making."""
    own = getattr(error, "for_logs", None)
    name = type(error).__name__
    return f"{name}: {shorten(own)}" if isinstance(own, str) else name


def refusal(error: Exception) -> str:
    """The reason why a topic or a template is invalid. For `push`, it only says where to look: the full reason quotes
    the value, which may hold a token.
    """
    field: str = getattr(error, "field", "")
    if "push" in field.split("."):
        return f"{field} is not valid: `evenlane topics list` shows why"
    return shorten(str(error))


def find_origin(error: BaseException) -> str:
    """File and line of the innermost frame, as the type alone doesn't lead there."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""


def shorten(text: str) -> str:
    """Shorten to one line of bounded length."""
    line = " ".join(text[: 2 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
