"""Who waits for puts: one call for one, or one call for many on their way together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.errors import EvenlaneError, UnknownProject

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.producer.pipeline import PutPipeline
    from evenlane.engine.producer.put import Outcome, PendingPut, Put

_REFUSED_IN_A_ROW = 256  # before the event loop gets its turn


class BatchPut:
    """`done` gets each put's number, from 0, and its outcome."""

    def __init__(self, way: PutPipeline, done: Callable[[int, Outcome], None]) -> None:
        self._way, self._done = way, done
        self._numbers = self._flying = self._refused = 0
        self._waiting: PendingPut | None = None
        self._unknown: tuple[Put, UnknownProject] | None = None  # a template may have a topic made for it
        self._all_landed: asyncio.Future[None] | None = None

    def add(self, put: Put) -> bool:
        """Send it, or say in its outcome why not. False: `ready` must be awaited before the next."""
        try:
            sending, may_go = self._way.begin(put)
        except (EvenlaneError, TypeError) as error:
            if isinstance(error, UnknownProject) and self._way.may_have_topic(put.project):
                self._unknown = put, error
                return False
            self._refuse(error)
            return self._refused % _REFUSED_IN_A_ROW != 0
        if not may_go:
            self._waiting = sending
            return False
        self._send(sending)
        return True

    async def ready(self) -> None:
        sending, self._waiting = self._waiting, None
        unknown, self._unknown = self._unknown, None
        if sending is None and unknown is None:
            await asyncio.sleep(0)
            return
        try:
            may_go = False
            if unknown is not None:
                sending, may_go = await self._way.begin_late(*unknown)
            assert sending is not None
            if not may_go:
                await self._way.clear(sending)
        except (EvenlaneError, TypeError) as error:
            self._refuse(error)
        else:
            self._send(sending)

    async def end(self) -> None:
        """Wait until every put that was added has its outcome."""
        while self._flying:
            self._all_landed = asyncio.get_running_loop().create_future()
            await self._all_landed

    def give_up(self) -> None:
        """Wait for none of those still on their way, nor keep anything of them."""
        if self._flying:
            self._way.forget(self)

    def landed(self, sending: PendingPut, outcome: Outcome) -> None:
        self._flying -= 1
        if not self._flying and self._all_landed is not None and not self._all_landed.done():
            self._all_landed.set_result(None)
        self._done(sending.number, outcome)

    def _send(self, sending: PendingPut) -> None:
        sending.number = self._numbers
        self._numbers += 1
        self._flying += 1
        self._way.send(sending, self)

    def _refuse(self, error: Exception) -> None:
        self._numbers += 1
        self._refused += 1
        self._done(self._numbers - 1, error)
