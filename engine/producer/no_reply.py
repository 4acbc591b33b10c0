"""Finds out why puts get no answer: asks the store, and keeps the reasons for the errors of puts that time out."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from evenlane.engine.base import names
from evenlane.engine.core.ports import Lost, Refused
from evenlane.engine.errors import EvenlaneError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.ports import Store

AFTER_S = 1.0  # of silence
_EVERY_S = 1.0
_BELIEVED_S = 3.0
UNKNOWN = "the store did not answer in time"
LOST = "the connection to the store is lost"


class ReplyTimeouts:
    """Reasons for missing answers, for all puts of a producer. Times are the loop's, in seconds.

    Invariant: `_reasons` (by stream) is valid until `_until`; `_next` is when the store may be asked again.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._reasons: dict[str, str] = {}
        self._until = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._next = 0.0

    def reason_for(self, subject: str, now: float) -> str:
        """Return the reason for a put to this subject, empty if unknown."""
        return self._reasons.get(names.stream_of(subject), "") if now < self._until else ""

    def any_reason(self, now: float) -> str:
        """Return a reason for any put, empty if none is known."""
        if not self._store.is_connected:
            return LOST
        return next(iter(self._reasons.values()), "") if now < self._until else ""

    def is_due(self, now: float) -> bool:
        """Whether the last request is answered and old enough."""
        return now >= self._next and (self._asking is None or self._asking.done())

    def ask(self, subjects: Iterable[str], now: float) -> None:
        """Ask the store about the streams of these subjects, which get no answers."""
        streams = sorted({names.stream_of(subject) for subject in subjects})
        if streams:
            self._next = now + _EVERY_S
            self._asking = asyncio.create_task(self._learn(streams, now), name="producer asks why")

    async def reason(self, subject: str, now: float) -> str:
        """Ask the store now and return the reason for this subject."""
        await self._learn([names.stream_of(subject)], now)
        return self.reason_for(subject, now) or UNKNOWN

    async def _learn(self, streams: list[str], now: float) -> None:
        with contextlib.suppress(Lost, Refused, EvenlaneError):
            found = await self._store.unwritable(streams)
            self._reasons = {stream: failure.why for stream, failure in found.items()}
            self._until = now + _BELIEVED_S

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
