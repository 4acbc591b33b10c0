"""Pipeline of a put: routing, admission by its limits, sending, completion."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from evenlane.engine.errors import UnknownProject
from evenlane.engine.producer.pipeline.pending_put import ADMITTED, DONE, SinglePut

if TYPE_CHECKING:
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.producer.auto_create import TopicAutoCreate
    from evenlane.engine.producer.pipeline.pending_put import Completion, Limit, PendingPut, RateLimit
    from evenlane.engine.producer.pipeline.router import Router
    from evenlane.engine.producer.pipeline.sender import Sender
    from evenlane.engine.producer.put import Put


class PutPipeline:
    """Carries all puts of a producer. `timeout_s` bounds the waits for limits and all tries together, but not the wait
    for a topic that `auto_create` has a template create.
    """

    def __init__(
        self,
        router: Router,
        backlog: Limit,
        rate: RateLimit | None,
        sender: Sender,
        timeout_s: float,
        auto_create: TopicAutoCreate | None = None,
    ) -> None:
        self._router, self._sender, self._rate = router, sender, rate
        self._timeout_s, self._auto_create = timeout_s, auto_create
        # With a rate limit, a put takes room in the window only in its turn, so as not to occupy it while it waits.
        self._limits: tuple[Limit, ...] = (backlog, sender.window if rate is None else rate)
        self._limits_without_backlog = self._limits[1:]
        self._send = sender.send if rate is None else rate.send

    def prepare(self, put: Put) -> PendingPut:
        """Route a put, and admit it unless a limit makes it wait: then its state isn't ADMITTED, and `admit` must be
        awaited. Raises the put's error, or BacklogFull.
        """
        pending = self._router.address(put)
        # skips a call per put for topics without max_backlog
        for limit in self._limits if pending.has_backlog_limit else self._limits_without_backlog:
            if not limit.try_acquire(pending):
                return pending
        pending.state = ADMITTED
        return pending

    def home_partition(self, project: str) -> int:
        """Return the partition of a project's first group. Raises InvalidName."""
        return self._router.home_partition(project)

    def may_have_topic(self, project: str) -> bool:
        """Whether a topic may be created for an unknown project; `prepare_after_create` finds out."""
        return self._auto_create is not None and not self._auto_create.is_hopeless(project)

    async def prepare_after_create(self, put: Put, refusal: UnknownProject) -> PendingPut:
        """Create an unknown project's topic, then `prepare` the put. Raises `refusal`, or what `prepare` raises."""
        if self._auto_create is None:
            raise refusal
        await self._auto_create.ensure_topic(put.project, refusal)
        return self.prepare(put)

    async def admit(self, pending: PendingPut) -> None:
        """Wait until all limits admit the put. Raises BacklogFull, NotAcknowledged, ProducerClosed: it wasn't sent."""
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
        """Send an admitted put. `completion` gets the receipt or the error, never during this call."""
        pending.completion = completion
        self._send(pending)

    async def deliver(self, put: Put) -> Receipt:
        """Send one put and wait for its acknowledgement. Raises the put's error."""
        refusal: UnknownProject | None = None
        try:
            pending = self.prepare(put)
        except UnknownProject as unknown:
            refusal = unknown
        if refusal is not None:
            pending = await self.prepare_after_create(put, refusal)
        if pending.state is not ADMITTED:
            pending.is_alone = True
            await self.admit(pending)
        single = SinglePut()
        self.send(pending, single)
        try:
            return await single.outcome
        finally:
            if pending.state is not DONE:  # the caller was cancelled
                if self._rate is not None:
                    self._rate.discard(single)
                self._sender.complete(pending, None)

    def discard(self, completion: Completion) -> None:
        """Complete these puts without an outcome, as their caller has gone. They may or may not be stored."""
        if self._rate is not None:
            self._rate.discard(completion)
        self._sender.discard(completion)
