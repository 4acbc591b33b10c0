"""What is said in the log of attempts that fail: the first of a kind, and then no more than one each ten seconds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from engine.clock import now_ns

if TYPE_CHECKING:
    from engine.message import Message

_log = structlog.get_logger(__name__)

_EVERY = 10_000_000_000  # ns
_MOST = 1_000  # kinds that are remembered


class Complaints:
    """A kind is a project and a type of error."""

    def __init__(self) -> None:
        self._next: dict[tuple[str, type[BaseException]], int] = {}
        self._unsaid: dict[tuple[str, type[BaseException]], int] = {}

    def failed(self, message: Message, error: BaseException, text: str, follows: str) -> None:
        """An attempt ended with `error`."""
        kind, now = (message.project, type(error)), now_ns()
        if now < self._next.get(kind, 0):
            self._unsaid[kind] = self._unsaid.get(kind, 0) + 1
            return
        if len(self._next) >= _MOST:
            self._next.clear()
            self._unsaid.clear()
        self._next[kind] = now + _EVERY
        _log.warning(
            "an attempt failed", project=message.project, id=message.id, attempt=message.attempt, error=text,
            where=_where(error), then=follows, others_like_it=self._unsaid.pop(kind, 0),
        )  # fmt: skip


def _where(error: BaseException) -> str:
    """File and line of the innermost frame; the type and text alone don't lead to it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace is not None else ""
