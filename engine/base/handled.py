"""The messages that the running handler has, for its log lines.

A handler's task, its subtasks and its threads share their context variables. `MESSAGES` is set once per call of a
handler, `HOLDER` once per worker. A task that outlives its handler keeps both values, but its holder then has other
messages, or none.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence
    from typing import Any


class Handled(Protocol):
    """A message, as far as log lines need it."""

    @property
    def project(self) -> str: ...

    @property
    def id(self) -> str: ...

    @property
    def attempt(self) -> int: ...


class Holder(Protocol):
    """A worker. `messages` are those that its handler has now; the sequence is a new object for each call. `awaited` is
    the task in the event loop for which a handler's thread waits.
    """

    awaited: asyncio.Task[Any] | None

    @property
    def messages(self) -> Sequence[Handled]: ...


MESSAGES: ContextVar[Sequence[Handled]] = ContextVar("evenlane messages", default=())
HOLDER: ContextVar[Holder | None] = ContextVar("evenlane holder", default=None)


def find_handled() -> Sequence[Handled]:
    """The messages of the handler that called; empty outside of a handler, and after its end."""
    messages = MESSAGES.get()
    if not messages:
        return ()
    holder = HOLDER.get()
    return messages if holder is not None and holder.messages is messages else ()
