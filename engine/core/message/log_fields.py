"""What a line of the log says of a message, a lane or a failure: the same fields everywhere, and never what a message
holds.

A handler's exception is told by its type and by where it was raised. Its text is not: validation errors, for one, quote
the value that they don't like, which is the payload. It is in the dead letter, which who may see messages may see.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message

_LONGEST_TEXT = 4_096  # characters of an exception's text
_LONGEST = 200  # characters of what came from outside


def of_message(message: Message) -> dict[str, Any]:
    return {
        "project": message.project, "id": cut(message.id), "attempt": message.attempt, "partition": message.partition,
        "epoch": message.epoch,
    }  # fmt: skip


def of_lane(lane: Lane) -> dict[str, Any]:
    return {"partition": lane.id.partition, "epoch": lane.epoch, "kind": lane.id.kind}


def described(error: BaseException) -> str:
    """Type and text of a handler's exception, whatever its own `__str__` does."""
    try:
        text = str(error)[:_LONGEST_TEXT]
    except BaseException:  # noqa: BLE001 - one tenant's odd exception must not end the node
        text = "(its text can't be had)"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def failure(error: BaseException) -> str:
    """Its type, and its text if that is of our own making."""
    own = getattr(error, "for_logs", None)
    name = type(error).__name__
    return f"{name}: {cut(own)}" if isinstance(own, str) else name


def refusal(error: Exception) -> str:
    """Why a topic or a template is not valid. What is wrong with `push` is told where topics are: it is quoted there,
    and may hold a token.
    """
    field: str = getattr(error, "field", "")
    return f"{field} is not valid: `evenlane topics list` tells why" if "push" in field.split(".") else cut(str(error))


def raised_at(error: BaseException) -> str:
    """File and line of the innermost frame; the type alone doesn't lead to it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""


def cut(text: str) -> str:
    """One line of bounded length."""
    line = " ".join(text[: 2 * _LONGEST].split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"
