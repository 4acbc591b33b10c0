"""What a put passes before it is sent: its topic's backlog limit, admission, room for what is on its way."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from evenlane.engine.errors import UnknownProject
from evenlane.engine.producer.put import SinglePut

if TYPE_CHECKING:
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.producer.auto_create import TopicAutoCreate
    from evenlane.engine.producer.backlog_limit import BacklogLimiter
    from evenlane.engine.producer.put import Completion, PendingPut, Put
    from evenlane.engine.producer.rate_limit import RateLimiter
    from evenlane.engine.producer.router import Router
    from evenlane.engine.producer.sender import Sender


class PutPipeline:
    """Of all puts of a producer. `timeout_s` bounds the waits on it together with all tries, but for that of a topic to
    be made by a template, of which `missing` knows.
    """

    def __init__(
        self,
        addressing: Router,
        limits: BacklogLimiter,
        admission: RateLimiter | None,
        sender: Sender,
        timeout_s: float,
        missing: TopicAutoCreate | None = None,
    ) -> None:
        self._addressing, self._limits, self._admission = addressing, limits, admission
        self._sender, self._timeout_s, self._missing = sender, timeout_s, missing

    def begin(self, put: Put) -> tuple[PendingPut, bool]:
        """Address it, and whether it may be sent at once; else `clear` is to be awaited first. Raises what is wrong
        with it, BacklogFull.
        """
        sending = self._addressing.addressed(put)
        if sending.accepted.topic.max_backlog is not None and not self._limits.take(sending):
            return sending, False
        if self._admission is not None:
            return sending, not self._admission.gate(sending).full
        return sending, self._sender.window.take(sending.size)

    def may_have_topic(self, project: str) -> bool:
        """Whether an unknown project may have a topic made: `begin_late` finds out."""
        return self._missing is not None and not self._missing.hopeless(project)

    async def begin_late(self, put: Put, refusal: UnknownProject) -> tuple[PendingPut, bool]:
        """`begin`, for a project that was unknown, when a topic has been made for it. Raises `refusal`, or what `begin`
        raises.
        """
        if self._missing is None:
            raise refusal
        await self._missing.made(put.project, refusal)
        return self.begin(put)

    async def clear(self, sending: PendingPut, *, alone: bool = False) -> None:
        """Wait until it may be sent; raises BacklogFull, NotAcknowledged, ProducerClosed. It was not sent then. One
        that comes `alone` may always be set aside: its caller waits, and overtakes nobody.
        """
        sending.deadline = monotonic() + self._timeout_s
        try:
            if sending.accepted.topic.max_backlog is not None and sending.backlog is None:
                while not self._limits.take(sending):
                    await self._limits.known(sending)
            if self._admission is not None:
                if not alone:
                    await self._admission.gate(sending).room(sending)
            elif not self._sender.window.take(sending.size):
                await self._sender.room(sending)
        except BaseException:
            self._sender.turn_away(sending, None)
            raise

    def send(self, sending: PendingPut, landing: Completion) -> None:
        """Send what may go; `landing` gets the receipt or the error, never at once."""
        sending.landing = landing
        if self._admission is not None:
            sending.deadline = sending.deadline or monotonic() + self._timeout_s
            self._admission.gate(sending).add(sending)
        else:
            self._sender.send(sending)

    async def deliver(self, put: Put) -> Receipt:
        """Send and wait for the acknowledgement. Raises what a put raises."""
        try:
            sending, may_go = self.begin(put)
        except UnknownProject as refusal:
            sending, may_go = await self.begin_late(put, refusal)
        if not may_go:
            await self.clear(sending, alone=True)
        single = SinglePut()
        self.send(sending, single)
        try:
            return await single.outcome
        finally:
            if sending.size >= 0:  # whoever waited is cancelled
                if self._admission is not None:
                    self._admission.forget(single)
                self._sender.drop(sending)

    def forget(self, landing: Completion) -> None:
        """Nobody waits any more for these; they may be stored or not."""
        if self._admission is not None:
            self._admission.forget(landing)
        self._sender.forget(landing)
