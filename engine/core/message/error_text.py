"""Renders exceptions for logs and dead letters: one line of bounded length."""

from __future__ import annotations

from pathlib import Path
from traceback import format_tb

from evenlane.engine.base.short_text import shorten as shorten  # noqa: PLC0414 - also imported from here

_LONGEST_TEXT = 4_096  # characters of an exception's text
_MOST_CAUSES = 5  # of an exception, itself included
_MOST_FRAMES = 50  # innermost ones of a traceback


def describe_error(error: BaseException) -> str:
    """Type and text of a handler's exception; safe even if its `__str__` fails."""
    text = read_text(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def read_text(error: BaseException) -> str:
    """The text of a handler's exception; safe even if its `__str__` fails."""
    try:
        return str(error)[:_LONGEST_TEXT]
    except BaseException:  # noqa: BLE001 - one tenant's odd exception must not end the node
        return "(its text isn't available)"


def format_traceback(error: BaseException) -> str:
    """The traceback of a handler's exception, those of its causes first, as Python writes it but bounded; safe even if
    an exception's `__str__` fails.
    """
    blocks: list[str] = []
    each: BaseException | None = error
    while each is not None and len(blocks) < _MOST_CAUSES:
        frames = "".join(format_tb(each.__traceback__, -_MOST_FRAMES))
        blocks.append(f"Traceback (most recent call last):\n{frames}{describe_error(each)}")
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
    return "\n\n".join(reversed(blocks))


def failure(error: BaseException, *, with_text: bool) -> str:
    """The exception's type, and its text: one of our own making, `for_logs`, or that of the handler. The latter may
    quote the payload, and is left out without `with_text`.
    """
    own = getattr(error, "for_logs", None)
    name = type(error).__name__
    if isinstance(own, str):
        return f"{name}: {shorten(own)}"
    return shorten(describe_error(error)) if with_text else name


def refusal(error: Exception) -> str:
    """The reason why a topic or a template is invalid. For `push`, it only says where to look: the full reason quotes
    the value, which may hold a token.
    """
    field: str = getattr(error, "field", "")
    if "push" in field.split("."):
        return f"{field} is not valid: `evenlane topics list` shows why"
    return shorten(str(error))


def find_origin(error: BaseException) -> str:
    """File and line of the innermost frame, as the type alone doesn't lead there; empty for an error with
    `hides_origin`, whose text is enough.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or getattr(error, "hides_origin", False):
        return ""
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}"
