"""Batch put: one call whose messages are in flight together."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.errors import EvenlaneError, UnknownProject
from evenlane.engine.producer.pipeline.pending_put import ADMITTED

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.producer.pipeline.pending_put import PendingPut
    from evenlane.engine.producer.pipeline.pipeline import PutPipeline
    from evenlane.engine.producer.put import Outcome, Put

_REFUSED_IN_A_ROW = 256  # before the event loop runs other tasks


class OutcomeList:
    """The outcomes of a batch by the numbers of its puts."""

    def __init__(self) -> None:
        self._outcomes: dict[int, Outcome] = {}

    def add(self, number: int, outcome: Outcome) -> None:
        self._outcomes[number] = outcome

    def in_order(self) -> list[Outcome]:
        return [self._outcomes[number] for number in range(len(self._outcomes))]


class BatchPut:
    """Sends the puts of one call. `done` is called with each put's number, from 0, and its outcome.

    Invariants: at most one of `_waiting` and `_unknown` is set, and `ready` clears both; `_in_flight` counts sent puts
    without an outcome; `_failure` is what `done` raised, after which it isn't called again.
    """

    def __init__(self, pipeline: PutPipeline, done: Callable[[int, Outcome], None]) -> None:
        self._pipeline, self._done = pipeline, done
        self._numbers = self._in_flight = self._refused = 0
        self._waiting: PendingPut | None = None
        self._unknown: tuple[Put, UnknownProject] | None = None  # a template may create its topic
        self._all_completed: asyncio.Future[None] | None = None
        self._failure: BaseException | None = None

    def add(self, put: Put) -> bool:
        """Send a put, or report its error as outcome. Returns False if `ready` must be awaited before the next. Raises
        what `done` raises, as `ready` and `end` do.
        """
        self._check_failure()
        try:
            pending = self._pipeline.prepare(put)
        except (EvenlaneError, TypeError) as error:
            if isinstance(error, UnknownProject) and self._pipeline.may_have_topic(put.project):
                self._unknown = put, error
                return False
            self._refuse(error)
            return self._refused % _REFUSED_IN_A_ROW != 0
        if pending.state is not ADMITTED:
            self._waiting = pending
            return False
        self._send(pending)
        return True

    async def ready(self) -> None:
        pending, self._waiting = self._waiting, None
        unknown, self._unknown = self._unknown, None
        if pending is None and unknown is None:
            await asyncio.sleep(0)
            return
        try:
            if unknown is not None:
                pending = await self._pipeline.prepare_after_create(*unknown)
            assert pending is not None
            if pending.state is not ADMITTED:
                await self._pipeline.admit(pending)
        except (EvenlaneError, TypeError) as error:
            self._refuse(error)
        else:
            self._check_failure()
            self._send(pending)

    async def end(self) -> None:
        """Wait until each added put has its outcome."""
        self._check_failure()
        while self._in_flight:
            self._all_completed = asyncio.get_running_loop().create_future()
            await self._all_completed
            self._check_failure()

    def give_up(self) -> None:
        """Abandon the puts still in flight."""
        if self._in_flight:
            self._pipeline.discard(self)

    def complete(self, pending: PendingPut, outcome: Outcome) -> None:
        self._in_flight -= 1
        if self._failure is None:
            try:
                self._done(pending.number, outcome)
            except BaseException as error:  # noqa: BLE001 - the caller gets it: here it would end the store's reader
                self._failure = error
        is_over = not self._in_flight or self._failure is not None
        if is_over and self._all_completed is not None and not self._all_completed.done():
            self._all_completed.set_result(None)

    def _send(self, pending: PendingPut) -> None:
        pending.number = self._numbers
        self._numbers += 1
        self._in_flight += 1
        self._pipeline.send(pending, self)

    def _refuse(self, error: Exception) -> None:
        self._numbers += 1
        self._refused += 1
        self._check_failure()
        self._done(self._numbers - 1, error)

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
