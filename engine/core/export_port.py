"""The export port: the store as reports see it. Reports read whole streams, each from one sequence to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from evenlane.engine.core.ports import Stored


class Stream(NamedTuple):
    """The state of a stream. `created` tells it from earlier streams of the same name. `first` to `last` are sequences,
    of which `messages` still exist; `bytes` is the server's count for them. A stream that never held a message goes
    from 1 to 0.
    """

    name: str
    created: str
    first: int
    last: int
    messages: int
    bytes: int


class Range(NamedTuple):
    """The part of a stream from the sequence `first` to `last`; with `subjects`, only messages of these. `bodies`: with
    payloads.
    """

    stream: str
    first: int
    last: int
    subjects: tuple[str, ...] = ()
    bodies: bool = True


class Read(NamedTuple):
    """A message, and the size of its body (bytes), whether the body was read or not."""

    stored: "Stored"
    size: int


class StreamSource(Protocol):
    """A connection through which streams are read. All methods but `open` and `close` raise Disconnected, TimeoutError
    if the server doesn't answer, and Refused if it refuses.
    """

    async def open(self) -> None:
        """Raises Unreachable."""

    async def streams(self, subjects: str) -> list[Stream]:
        """The streams that take any of these subjects."""

    async def stream(self, name: str) -> Stream | None:
        """The stream of this name; None if it doesn't exist."""

    async def sequence_at(self, name: str, at: int) -> int:
        """The first sequence of messages that arrived at `at` (unix ns) or later. It may not exist yet."""

    def read(self, requested: Range) -> AsyncGenerator[list[Read], None]:
        """Read page by page, in order and in bounded memory. Messages deleted meanwhile are left out. If the server
        goes away, reading waits for it and resumes where it was. Raises Unreachable, EvenlaneError.
        """

    async def close(self) -> None: ...
