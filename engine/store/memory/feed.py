"""A feed of a stream in memory: in order, in small batches, from the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.aio.cancellation import cancel_and_wait
from evenlane.engine.core.ports import Lost
from evenlane.engine.store.byte_lag import ByteLag

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.core.ports import Stored
    from evenlane.engine.store.feed_callbacks import FeedCallbacks
    from evenlane.engine.store.memory.server import MemoryConnection
    from evenlane.engine.store.memory.stream import MemoryStream

_log = structlog.get_logger(__name__)

_BATCH = 64  # messages per turn of the loop,
_BATCH_BYTES = 1 << 20  # or about this many bytes
_PAUSE_S = 0.05


class MemoryFeed:
    """A feed that runs until `close`, or until it has delivered up to `until`. `sink` may be replaced meanwhile. Only
    messages whose subject begins with `prefix` are delivered.
    """

    def __init__(
        self,
        store: MemoryConnection,
        stream: str,
        callbacks: FeedCallbacks,
        *,
        start: int,
        until: int | None = None,
        hours: Sequence[int | str] | None = None,
        prefix: str = "",
    ) -> None:
        self._store, self._stream, self._callbacks, self.sink = store, stream, callbacks, callbacks.sink
        self._hours, self._prefix = frozenset(str(hour) for hour in hours or ()), prefix
        self._last, self._until = start - 1, until
        self._lag = ByteLag()
        self._broken = ""
        self._wake = asyncio.Event()
        self.task = asyncio.create_task(self._run(), name=f"feed {stream}")

    async def close(self) -> None:
        await cancel_and_wait(self.task)

    def disturb(self, why: str) -> None:
        """Break the feed, so that it resumes after `on_break`."""
        self._broken = why
        self._wake.set()

    async def _run(self) -> None:
        while not await self._deliver():
            _log.debug("feed broken", stream=self._stream, why=self._broken, last=self._last)
            self._last = await self._resume() - 1
        self._callbacks.call_on_end()

    async def _resume(self) -> int:
        while True:
            await self._store.up.wait()
            self._broken = ""
            try:
                start = await self._callbacks.on_break(self._last)
            except Lost:
                await asyncio.sleep(_PAUSE_S)
            else:
                if not self._broken:
                    return start

    async def _deliver(self) -> bool:
        """True at the end, False if the feed was broken."""
        await asyncio.sleep(0)
        try:
            stream = self._store.server.stream(self._stream)
        except Lost as error:
            self._broken = str(error)
        if not self._store.up.is_set():
            self._broken = "there is no connection"
        if self._broken:
            await asyncio.sleep(_PAUSE_S)
            return False
        stream.listeners[self._wake.set] = None
        try:
            return await self._follow(stream)
        finally:
            stream.listeners.pop(self._wake.set, None)

    async def _follow(self, stream: MemoryStream) -> bool:
        while not self._broken:
            self._wake.clear()
            if self._give(stream):
                await asyncio.sleep(0)
            elif self._until is not None:
                return True
            else:
                self._callbacks.call_on_end()
                await self._wake.wait()
        return False

    def _give(self, stream: MemoryStream) -> bool:
        """Deliver the next batch; False if there was no message."""
        size = 0
        for number in range(_BATCH):
            message = stream.after(self._last, self._until, self._hours, self._prefix)
            if message is None:
                self._lag.require_body()  # it has caught up
                return number > 0
            self._last = message.sequence
            self._pass_on(message)
            size += len(message.body)
            if size >= _BATCH_BYTES or number == _BATCH - 1:
                self._lag.note_pull(number + 1, size, stream.last - self._last)
                break
        return True

    def _pass_on(self, message: Stored) -> None:
        if self._lag.leaves_bodies and self._leave_body(message):
            return
        try:
            self.sink(message.subject.encode(), message.sequence, message.at, message.headers, message.body)
        except Exception:  # noqa: BLE001 - as on JetStream: a message that can't be taken in doesn't stop the feed
            _log.exception("a message could not be taken in", subject=message.subject)

    def _leave_body(self, message: Stored) -> bool:
        head = message.subject.encode(), message.sequence, message.at, message.headers, len(message.body)
        if self._callbacks.on_head is not None and self._callbacks.on_head(*head):
            return True
        self._lag.require_body()
        return False
