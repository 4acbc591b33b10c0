"""The way of a put: addressed, admitted by its limits, sent, and completed."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from evenlane.engine.errors import UnknownProject
from evenlane.engine.producer.put import ADMITTED, DONE, SinglePut

if TYPE_CHECKING:
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.producer.auto_create import TopicAutoCreate
    from evenlane.engine.producer.put import Completion, Limit, PendingPut, Put
    from evenlane.engine.producer.rate_limit import RateLimiter
    from evenlane.engine.producer.router import Router
    from evenlane.engine.producer.sender import Sender


class PutPipeline:
    """Takes all puts of a producer. `timeout_s` bounds the waits for limits together with all tries, but not the wait
    for a topic that a template makes, which `auto_create` knows.
    """

    def __init__(
        self,
        router: Router,
        backlog: Limit,
        rate: RateLimiter | None,
        sender: Sender,
        timeout_s: float,
        auto_create: TopicAutoCreate | None = None,
    ) -> None:
        self._router, self._sender, self._rate = router, sender, rate
        self._timeout_s, self._auto_create = timeout_s, auto_create
        # Under a rate limit a put takes its room in the window when its turn has come, so as not to keep it meanwhile.
        self._limits: tuple[Limit, ...] = (backlog, sender.window if rate is None else rate)
        self._limits_without_backlog = self._limits[1:]
        self._send = sender.send if rate is None else rate.send

    def prepare(self, put: Put) -> PendingPut:
        """Address a put, and admit it if no limit has it wait; otherwise `admit` must be awaited. Its state tells.
        Raises what is wrong with it, BacklogFull.
        """
        pending = self._router.addressed(put)
        # A topic without max_backlog saves its puts the question.
        bounded = pending.accepted.topic.max_backlog is not None
        for limit in self._limits if bounded else self._limits_without_backlog:
            if not limit.try_acquire(pending):
                return pending
        pending.state = ADMITTED
        return pending

    def may_have_topic(self, project: str) -> bool:
        """Whether an unknown project may have a topic made: `prepare_after_create` finds out."""
        return self._auto_create is not None and not self._auto_create.hopeless(project)

    async def prepare_after_create(self, put: Put, refusal: UnknownProject) -> PendingPut:
        """`prepare` a put whose project was unknown, when a topic has been made for it. Raises `refusal`, or what
        `prepare` raises.
        """
        if self._auto_create is None:
            raise refusal
        await self._auto_create.made(put.project, refusal)
        return self.prepare(put)

    async def admit(self, pending: PendingPut) -> None:
        """Wait until all limits admit a put. Raises BacklogFull, NotAcknowledged, ProducerClosed: it was not sent."""
        pending.deadline = monotonic() + self._timeout_s
        try:
            for limit in self._limits:
                if not limit.try_acquire(pending):
                    await limit.acquire(pending)
        except BaseException:
            self._sender.complete(pending, None)
            raise
        pending.state = ADMITTED

    def send(self, pending: PendingPut, completion: Completion) -> None:
        """Send an admitted put; `completion` gets the receipt or the error, never at once."""
        pending.completion = completion
        self._send(pending)

    async def deliver(self, put: Put) -> Receipt:
        """Send one put and wait for its acknowledgement. Raises what a put raises."""
        try:
            pending = self.prepare(put)
        except UnknownProject as refusal:
            pending = await self.prepare_after_create(put, refusal)
        if pending.state is not ADMITTED:
            pending.is_alone = True
            await self.admit(pending)
        single = SinglePut()
        self.send(pending, single)
        try:
            return await single.outcome
        finally:
            if pending.state is not DONE:  # the caller is cancelled
                if self._rate is not None:
                    self._rate.forget(single)
                self._sender.complete(pending, None)

    def forget(self, completion: Completion) -> None:
        """Complete these puts, for which no one waits any more; they may be stored or not."""
        if self._rate is not None:
            self._rate.forget(completion)
        self._sender.forget(completion)
