"""Puts by HTTP: one producer for all requests, and bounds on what they hold."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evenlane.engine.errors import EvenlaneError
from evenlane.engine.http.request_body import BodyWaits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from evenlane.engine.producer.producer import Producer

AT_ONCE = 32  # concurrent requests
HELD_BYTES = 32 << 20  # of all requests that are being read


class PutService:
    """Owns the producer, which the first request opens. `make` creates it; `node` is its node. Requests use `waits`
    to read their bodies.

    Invariants: `_requests` requests are between the begin and the end of `admit`, and `_held` is the total of their
    `hold`. `_opening` opens the producer, or has opened it; None before the first request.
    """

    def __init__(
        self, make: Callable[[], Producer], node: str, *, at_once: int = AT_ONCE, held_bytes: int = HELD_BYTES
    ) -> None:
        self._make = make
        self.waits = BodyWaits(f"node {node} is shutting down and takes no more messages: put to another node")
        self._at_once, self._held_bytes = at_once, held_bytes
        self._requests = self._held = 0
        self._opening: asyncio.Task[Producer] | None = None

    @contextmanager
    def admit(self) -> Iterator[None]:
        """Count a request. Raises EvenlaneError if too many run."""
        self.waits.check()
        if self._requests >= self._at_once:
            raise EvenlaneError(f"{self._at_once} requests are already putting messages: try again in a second")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    @contextmanager
    def hold(self, size: int) -> Iterator[None]:
        """Reserve memory for `size` bytes. Raises EvenlaneError if too many are reserved; a request that is alone
        always gets them.
        """
        if self._held and self._held + size > self._held_bytes:
            raise EvenlaneError(
                f"the requests that this node is reading may hold {self._held_bytes:,} bytes, and there is no room for"
                f" {size:,} more: try again in a second"
            )
        self._held += size
        try:
            yield
        finally:
            self._held -= size

    async def producer(self) -> Producer:
        """Return the open producer. Raises Unreachable, ConfigError, and EvenlaneError if the node shuts down. After an
        error, the next call tries again.
        """
        opening = self._opening
        if opening is None or (opening.done() and (opening.cancelled() or opening.exception() is not None)):
            opening = self._opening = asyncio.create_task(self._open(), name="producer for HTTP")
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            if opening.cancelled():
                self.waits.check()
            raise

    async def close(self) -> None:
        """Refuse further messages, and close the producer. Puts without an acknowledgement fail."""
        self.waits.end()
        opening = self._opening
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
        await asyncio.wait([opening])
        if not opening.cancelled() and opening.exception() is None:
            await opening.result().close()

    async def _open(self) -> Producer:
        producer = self._make()
        await producer.open()
        return producer
