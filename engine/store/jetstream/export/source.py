"""The export port on JetStream."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenlane.engine.core.ports import Refused
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.replies import ApiError
from evenlane.engine.store.jetstream.export import ranges, streams

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator

    from evenlane.engine.core.export_port import Range, Read, Stream
    from evenlane.engine.store.jetstream.client.options import NatsOptions


class JetStreamSource:
    """See `evenlane.engine.core.export_port.StreamSource`."""

    def __init__(self, options: NatsOptions, name: str) -> None:
        self._connection = Connection(options, name)

    async def open(self) -> None:
        await self._connection.open()

    async def streams(self, subjects: str) -> list[Stream]:
        with _refusals():
            return await streams.streams(self._connection, subjects)

    async def stream(self, name: str) -> Stream | None:
        with _refusals():
            return await streams.stream(self._connection, name)

    async def sequence_at(self, name: str, at: int) -> int:
        with _refusals():
            return await streams.sequence_at(self._connection, name, at)

    def read(self, requested: Range) -> AsyncGenerator[list[Read], None]:
        return ranges.read(self._connection, requested)

    async def close(self) -> None:
        await self._connection.close()


@contextmanager
def _refusals() -> Iterator[None]:
    try:
        yield
    except ApiError as error:
        raise Refused(str(error)) from error
