"""The shell of one feed: runs one pull consumer after another, whose messages are delivered in stream order.

`PullConsumer` decides. The feed creates the consumer at the server, carries out its actions, and replaces it when it
has ended; the only sign of that downstream is the call of `on_break`. A feed that lags by bytes continues without
bodies (engine/store/byte_lag.py), if its owner can do without them.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from evenlane.engine.base.aio.cancellation import cancel_and_wait
from evenlane.engine.core.ports import Disconnected, Lost
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.store.byte_lag import ByteLag
from evenlane.engine.store.jetstream.api.values import ConsumerInfo
from evenlane.engine.store.jetstream.client.replies import ApiError
from evenlane.engine.store.jetstream.delivery.pull_consumer import (
    HEARTBEAT_S,
    CaughtUp,
    Ended,
    EndReason,
    Pull,
    PullConsumer,
    PullStage,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from evenlane.engine.store.feed_callbacks import FeedCallbacks
    from evenlane.engine.store.jetstream.client.connection import Connection
    from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget
    from evenlane.engine.store.jetstream.delivery.pull_consumer import Action

_log = structlog.get_logger(__name__)

_EXPIRES_S = 30.0
_ENDLESS = 1_000_000  # messages; a pull must end by bytes alone, because the server reports that end
_BACKOFF_S = (0.05, 0.1, 0.2, 0.5, 1.0)
_UNVERIFIED_S = 0.2  # before the lane is verified again
_TRIES_FOR_LEADER = 16
_SECOND = 1_000_000_000


@dataclass(frozen=True)
class FeedSource:
    """The stream and subjects that a feed reads; all subjects if there are none. If `leader` returns the server that
    leads the stream, only consumers on that server are used.
    """

    stream: str
    subjects: Sequence[str] = ()
    leader: Callable[[], Awaitable[str | None]] | None = None


class JetStreamFeed:
    """A feed that runs until `close`, or until it has delivered up to `until`.

    Invariant: `_last` is the last sequence delivered by all consumers before the present one, whose own `last` counts
    while it runs. `_name` and `_sid` are set exactly while the consumer, and the subscription to its inbox, exist.
    """

    def __init__(
        self,
        connection: Connection,
        budget: FeedBudget,
        source: FeedSource,
        callbacks: FeedCallbacks,
        *,
        start: int,
        until: int | None = None,
    ) -> None:
        self._connection, self._budget, self._source, self._callbacks = connection, budget, source, callbacks
        self._last, self._until = start - 1, until
        self._lag = ByteLag()
        self._consumer: PullConsumer | None = None  # the present one, or the previous one
        self._name = ""  # of the consumer at the server; "": none
        self._sid = 0  # of the subscription to its inbox; 0: none
        self._has_progressed = False  # whether the last consumer that was created received messages
        self.task = asyncio.create_task(self._run(), name=f"feed {source.stream}")

    @property
    def stream(self) -> str:
        return self._source.stream

    @property
    def sink(self) -> Callable[[bytes, int, int, bytes, bytes], None]:
        """Receives the messages; may be replaced while the feed runs."""
        return self._callbacks.sink

    @sink.setter
    def sink(self, sink: Callable[[bytes, int, int, bytes, bytes], None]) -> None:
        self._callbacks.sink = sink
        if self._consumer is not None:
            self._consumer.sink = sink

    async def close(self) -> None:
        await cancel_and_wait(self.task)

    def disturb(self, why: str) -> None:
        """Replace the consumer, after `on_break`: the stream may have been replaced."""
        if self._consumer is not None:
            self._consumer.end(EndReason.DISTURBED, why)

    def check(self, now: float, late: float = 0.0) -> None:
        """Detect a silent consumer. Call this once per second, see `PullConsumer.on_second`."""
        if self._consumer is not None:
            self._consumer.on_second(now, late)

    # ---- one consumer after another

    async def _run(self) -> None:
        tries = 0
        self._budget.join()
        try:
            while (ended := await self._run_consumer()).reason is not EndReason.COMPLETE:
                stream, last = self._source.stream, self._last
                if ended.reason is EndReason.BODIES:
                    _log.debug("feed changed", stream=stream, last=last, bodies=not self._lag.leaves_bodies)
                    continue
                _log.debug("feed broken", stream=stream, why=ended.why, last=last)
                tries = 0 if self._has_progressed else tries + 1
                self._last = await self._resume() - 1
                await asyncio.sleep(_BACKOFF_S[min(tries, len(_BACKOFF_S) - 1)])
        finally:
            self._budget.leave()
        self._callbacks.call_on_end()

    async def _resume(self) -> int:
        """Have the lane verified, and return the sequence to continue from."""
        while True:
            try:
                return await self._callbacks.on_break(self._last)
            except (Lost, Disconnected, TimeoutError, ApiError) as error:
                _log.debug("lane not verified yet", stream=self._source.stream, error=str(error))
                await asyncio.sleep(_UNVERIFIED_S)

    async def _run_consumer(self) -> Ended:
        """Run one consumer to its end."""
        ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()
        callbacks = self._callbacks
        consumer = self._consumer = PullConsumer(
            sink=callbacks.sink, perform=partial(self._perform, ended), budget=self._budget, lag=self._lag,
            last=self._last, until=self._until, on_head=callbacks.on_head, awaits_end=callbacks.on_end is not None,
        )  # fmt: skip
        try:
            made = await self._create(consumer)
            self._name = made.name
            self._sid = self._connection.listen(f"{self._inbox}.*", consumer.on_message)
            consumer.on_created(made.num_pending, monotonic())
            return await ended
        except (Disconnected, TimeoutError, ApiError) as error:
            return Ended(EndReason.NOT_CREATED, str(error) or EndReason.NOT_CREATED.value)
        finally:
            consumer.end(EndReason.CLOSED)
            self._last = consumer.last
            self._delete(consumer)

    async def _create(self, consumer: PullConsumer) -> ConsumerInfo:
        stream, subjects = self._source.stream, list(self._source.subjects)
        config: dict[str, Any] = {
            "deliver_policy": "by_start_sequence", "opt_start_seq": consumer.last + 1, "ack_policy": "none",
            "mem_storage": True, "num_replicas": 1, "max_waiting": 16, "inactive_threshold": 60 * _SECOND,
        }  # fmt: skip
        if len(subjects) == 1:
            config["filter_subject"] = subjects[0]
        elif subjects:
            config["filter_subjects"] = subjects
        if consumer.headless:
            config["headers_only"] = True
        leader = await self._source.leader() if self._source.leader else None
        for _ in range(_TRIES_FOR_LEADER):
            made = await self._connection.api_as(
                ConsumerInfo, f"CONSUMER.CREATE.{stream}", {"stream_name": stream, "config": config}
            )
            if leader is None or made.leader == leader:
                return made
            await self._connection.api(f"CONSUMER.DELETE.{stream}.{made.name}")
        raise Disconnected("no consumer could be made on the stream's leader")

    def _delete(self, consumer: PullConsumer) -> None:
        self._stop_listening()
        if self._name:
            self._has_progressed = consumer.received > 0
            with contextlib.suppress(Disconnected):
                self._connection.send(f"$JS.API.CONSUMER.DELETE.{self._source.stream}.{self._name}", b"")
            self._name = ""

    # ---- actions of the consumer (called from the parser: nothing may be awaited)

    def _perform(self, ended: asyncio.Future[Ended], action: Action) -> None:
        if isinstance(action, Pull):
            self._pull(action)
        elif isinstance(action, CaughtUp):
            self._callbacks.call_on_end()
        else:
            self._stop_listening()
            if not ended.done():  # it is cancelled when the feed is closed
                ended.set_result(action)

    def _pull(self, pull: Pull) -> None:
        request: dict[str, Any] = {"batch": _ENDLESS, "max_bytes": pull.max_bytes}
        if pull.stage is PullStage.TURN:
            request["no_wait"] = True
        else:
            request |= {"expires": int(_EXPIRES_S * _SECOND), "idle_heartbeat": int(HEARTBEAT_S * _SECOND)}
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._source.stream}.{self._name}"
        try:
            self._connection.send(subject, msgspec.json.encode(request), reply=f"{self._inbox}.{pull.stage.value}")
        except EvenlaneError:
            if self._consumer is not None:
                self._consumer.end(EndReason.DISCONNECTED)

    def _stop_listening(self) -> None:
        if self._sid:
            self._connection.unlisten(self._sid)
            self._sid = 0

    @property
    def _inbox(self) -> str:
        return self._connection.inbox(f"feed.{self._source.stream}.{self._name}")
