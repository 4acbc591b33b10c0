"""The export port: what reports need of the store. They read whole streams, each from one sequence to another."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from evenlane.engine.core.ports import Stored


class Stream(NamedTuple):
    """`created` tells it from one that had its name before; `first` to `last` are sequences, of which `messages` are
    there still; `bytes` is what the server counts for them. Of one that never had any, from 1 to 0.
    """

    name: str
    created: str
    first: int
    last: int
    messages: int
    bytes: int


class Range(NamedTuple):
    """Of a stream, from the sequence `first` to `last`; with `subjects` only of these, `bodies`: the payloads, too."""

    stream: str
    first: int
    last: int
    subjects: tuple[str, ...] = ()
    bodies: bool = True


class Read(NamedTuple):
    """A message, and how many bytes its body has, whether it was read or not."""

    stored: Stored
    size: int


class StreamSource(Protocol):
    """A connection by which streams are read. All but `open` and `close` raise Disconnected and TimeoutError for a
    server that doesn't answer, Refused for one that refuses.
    """

    async def open(self) -> None:
        """Raises Unreachable."""

    async def streams(self, subjects: str) -> list[Stream]:
        """Those that take any of these subjects."""

    async def stream(self, name: str) -> Stream | None:
        """None if there is none."""

    async def sequence_at(self, name: str, at: int) -> int:
        """The sequence from which on messages came at `at` (unix ns) or later, which may be one that isn't there
        yet.
        """

    def read(self, wanted: Range) -> AsyncGenerator[list[Read], None]:
        """Page by page, in order and in bounded memory. What is deleted meanwhile is left out; a server that goes away
        is waited for, and the reading goes on where it was. Raises Unreachable, EvenlaneError.
        """

    async def close(self) -> None: ...
