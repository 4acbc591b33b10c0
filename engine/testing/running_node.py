"""One run of an application on a node of the test kit."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.core.message.dead_letter import read
from evenlane.engine.core.scheduler.fair import FairScheduler
from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.engine.node.handlers.application import application_of
from evenlane.engine.node.node import Node
from evenlane.engine.producer.producer import Producer
from evenlane.engine.store.memory import MemoryServer, MemoryStore
from evenlane.engine.testing.attempts import AttemptRecorder
from evenlane.engine.testing.held_scheduler import HeldScheduler

if TYPE_CHECKING:
    from collections.abc import Callable

    from evenlane.engine.core.message.dead_letter import DeadLetter
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.testing.fixed_topics import FixedTopics

ENV = "test"
_LATER = names.stream(ENV, LaneId("later", 0))
_SETTLE_S = 0.5  # between two settle records: the longest that leaves the next one in time
_START_TIMEOUT_S = 30.0
_HOUR = 3_600_000_000_000  # ns


class RunningNode:
    """A node with one partition, its application, and a producer, on one server in memory.

    Invariant: `ended` is empty until the node or the application has ended by itself; then it says why.
    """

    def __init__(
        self,
        app: Any,
        topics: FixedTopics,
        unix_ns: Callable[[], int],
        priorities: tuple[str, ...],
        concurrency: int,
        subscription: str | None,
    ) -> None:
        self._application = application_of(app)
        self.subscription = _choose(self._application.subscription, subscription)
        self.cluster = names.cluster_name(ENV, self.subscription or "")
        self._config = ClusterConfig(partitions=1, priorities=priorities)
        self._topics = topics
        self.start_timeout_s = _START_TIMEOUT_S
        self.attempts = AttemptRecorder()
        self.producers = 0
        self.ended = ""
        self.server = MemoryServer(clock=unix_ns)
        self.store = MemoryStore(self.server, self.cluster)
        self.producer = self._make_producer()
        scheduler: FairScheduler[Queue] = FairScheduler(concurrency, self._config.max_group_qps)
        self._held = HeldScheduler(scheduler)
        self.node = Node(
            self.store, self._config, self._application.routes.traced(self.attempts.wrap),
            partial(topics.topic_of, subscription=self.subscription),
            cluster=self.cluster, node_id="test", concurrency=concurrency, settle_interval=_SETTLE_S,
            scheduler=self._held, fallback=self._application.fallback, on_stop=self.on_end,
        )  # fmt: skip
        self._open = AsyncExitStack()

    # ---- life

    async def start(self) -> None:
        """Begin the application, and take its partition over. Raises EvenlaneError."""
        async with AsyncExitStack() as opened:
            await self.store.open()
            opened.push_async_callback(self.store.close)
            if names.subscription_of(self.cluster):
                await self.store.create_own_streams()
            await self.store.prepare([LaneId(kind, 0) for kind in names.lane_kinds(self.cluster)])
            await self.producer.open()
            opened.push_async_callback(self.producer.close)
            opened.push_async_callback(self._application.end, _START_TIMEOUT_S)
            await self._application.begin(self)
            opened.push_async_callback(self.node.stop)
            await self.node.start()
            await self.node.take_over([0], 1)
            for project in self._topics.projects:  # as if it had been idle for long: its whole burst may start
                if self._application.routes.find(project) is not None:
                    self.node.queues.get(0, project, 0, 0)
            self._open = opened.pop_all()

    async def stop(self) -> None:
        """Drain, and end the application. Raises EvenlaneError if its lifespan fails."""
        try:
            await self._open.aclose()
        finally:
            self._abandon_handlers()

    def _abandon_handlers(self) -> None:
        """End handlers that ignore their cancellation: the test's event loop would wait for them for ever."""
        for worker in self.node.workers.all:
            task = worker.task
            if task is not None and not task.done():
                with suppress(RuntimeError):  # it ignores this, too
                    task.get_coro().close()
                task.cancel()

    def make_producer(self) -> Producer:
        """The application's own producer: see `Surroundings`."""
        return self._make_producer()

    def on_end(self, reason: str) -> None:
        self.ended = self.ended or reason

    def _make_producer(self) -> Producer:
        self.producers += 1
        return Producer(env=ENV, store=self.store, topics=self._topics, facts=self._config)

    def hold(self) -> None:
        """Start no more messages for now."""
        self._held.is_open = False

    def release(self) -> None:
        self._held.is_open = True
        self.node.signal.notify()

    # ---- state

    @property
    def is_busy(self) -> bool:
        node = self.node
        falls_back = self._application.fallback is not None and node.failures.pending > 0
        return node.workers.busy > 0 or node.gate.occupied > 0 or falls_back

    @property
    def progress(self) -> int:
        return self.attempts.count

    @property
    def has_delayed(self) -> bool:
        """Whether a stream of delayed messages and retries holds any message."""
        return any(self.server.stream(name).messages for name in self._delay_streams)

    @property
    def _delay_streams(self) -> list[str]:
        """A named subscription has its retries in a stream of its own."""
        return [_LATER, *([names.again_stream(self.cluster)] if names.subscription_of(self.cluster) else [])]

    @property
    def has_work_now(self) -> bool:
        """Whether anything can go on without waiting for its time: a handler that runs, a message that is due, or a
        batch that is being collected.
        """
        return not self.ended and (self.is_busy or self._has_due or self._is_collecting)

    @property
    def _has_due(self) -> bool:
        now = self.store.now()
        heads = (lane.delayed.next_due() for lanes in self.node.lanes.lanes.values() for lane in lanes)
        return any(due is not None and due <= now for due in heads)

    @property
    def _is_collecting(self) -> bool:
        return any(
            queue.ready and queue.rules.batch_wait and self.node.wait_rules.reason(queue) is None
            for queue in self.node.queues.all()
        )

    @property
    def dead_letters(self) -> list[DeadLetter]:
        return [read(stored, self.cluster) for stored in self.server.messages(names.dead_stream(self.cluster))]

    def count_far(self, project: str) -> int:
        """The number of a project's delayed messages that the node hasn't read yet, as their hour isn't near."""
        last = self.store.now() // _HOUR + 1
        subjects = (each.subject.split(".") for each in self.server.messages(_LATER))
        return sum(words[3] == project and int(words[-1]) > last for words in subjects)

    def explain_stuck(self, how_long: str) -> str:
        running = [message for messages in list(self.attempts.running.values()) for message in messages]
        if not running:
            return f"the application did not become idle {how_long}, although no handler runs"
        first = running[0]
        handling = first.queue.rules.handling.handlers
        handler = None if handling is None else handling.of(first)
        name = "a handler" if handler is None else f"the handler {handler.name}"
        others = f" (and {len(running) - 1} more)" if len(running) > 1 else ""
        return f"{name} has not ended {how_long}, with message {first.id!r} of project {first.project!r}{others}"

    def check(self) -> None:
        """Raises EvenlaneError if the node or the application has ended by itself."""
        if self.ended:
            raise EvenlaneError(f"the application has ended: {self.ended}")

    async def replay(self, dead_letter: DeadLetter, copy: tuple[str, bytes, bytes]) -> None:
        """Put the copy of a dead letter, and remove the dead letter."""
        await self.store.put(*copy)
        with suppress(KeyError):
            await self.store.delete(names.DEAD, dead_letter.sequence)


def _choose(own: str | None, given: str | None) -> str | None:
    """Return the subscription of an application or of a test. Raises ConfigError."""
    if own is not None and given is not None and own != given:
        raise ConfigError(f"the application handles messages for subscription {own!r}, and the test for {given!r}")
    return given if own is None else own
