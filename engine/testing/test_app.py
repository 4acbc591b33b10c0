"""`TestApp`: runs an application in a test."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Self

from evenlane.engine.base import names
from evenlane.engine.core.message import dead_letter as dead_letters
from evenlane.engine.errors import ConfigError, UnknownProject
from evenlane.engine.testing.driver import Driver
from evenlane.engine.testing.explanation import count_backlog, explain
from evenlane.engine.testing.fixed_topics import FixedTopics
from evenlane.engine.testing.loop_time import running_loop
from evenlane.engine.testing.running_node import ENV, RunningNode
from evenlane.engine.testing.virtual_clock import SECOND, VirtualClock

if TYPE_CHECKING:
    from types import TracebackType

    from evenlane.engine.core.message.dead_letter import DeadLetter
    from evenlane.engine.core.message.message import Message
    from evenlane.engine.core.ports import Receipt
    from evenlane.engine.testing.attempts import FailedAttempt


def _check(topics: Any, start: Any, concurrency: Any, priorities: Any) -> None:
    """Raise ConfigError for an argument of another kind."""
    if not isinstance(topics, Mapping) or not all(isinstance(fields, Mapping) for fields in topics.values()):
        raise ConfigError('topics must be the fields of each topic by project, such as {"acme": {"qps": 100}}')
    if start is not None and not isinstance(start, datetime):
        raise ConfigError(f"start must be a datetime, and this is of type {type(start).__name__}")
    if start is not None and start.tzinfo is None:
        raise ConfigError(f"start {start.isoformat()} has no time zone: give one, such as datetime.now(UTC)")
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigError(f"concurrency={concurrency!r} is not valid: it must be a whole number from 1")
    if isinstance(priorities, str) or not priorities:
        raise ConfigError(f"priorities={priorities!r} is not valid: name at least one")


_NOT_OPEN = "this TestApp is not open: use it inside of `async with TestApp(...) as t:`"
_LONGEST_S = 600.0  # of the clock's time, for `run_until_idle`


class TestApp:
    """Runs an application, or a handler, in a test: on the real scheduler, with a store in memory and a clock of its
    own. It needs no servers, opens no sockets and never sleeps.

        async with TestApp(app, topics={"acme": {"qps": 100}}) as t:
            await t.put("acme", b"...")
            await t.run_until_idle()

    `topics` has the fields of each project's topic. `start` is the time at which the clock begins, now by default; it
    moves only in `advance`, and in `run_until_idle` if handlers sleep. Handlers run in these two calls only. `seed` is
    for random numbers, such as the jitter of retries. `patience` is the longest real time (s) to wait for a handler
    that runs in a thread or uses a socket. `subscription` is the one that a handler works for; an application may name
    its own. Raises ConfigError, InvalidName, InvalidTopic.
    """

    __test__ = False  # or pytest takes it for a class of tests

    def __init__(
        self,
        app: Any,
        topics: Mapping[str, Mapping[str, Any]],
        *,
        start: datetime | None = None,
        seed: int = 0,
        concurrency: int = 64,
        patience: float = 10.0,
        priorities: tuple[str, ...] = ("high", "mid", "low"),
        subscription: str | None = None,
    ) -> None:
        _check(topics, start, concurrency, priorities)
        self._app, self._start, self._seed = app, start, seed
        self._concurrency, self._priorities, self._patience_s = concurrency, tuple(priorities), patience
        self._subscription = None if subscription is None else names.check_subscription(subscription)
        self._topics = FixedTopics(topics, self._priorities)
        self._undo: ExitStack | None = None
        self._running: RunningNode | None = None
        self._is_used = False

    # ---- life

    async def __aenter__(self) -> Self:
        if self._is_used:
            raise ConfigError("this TestApp has been used: make another one for each `async with`")
        loop = running_loop()
        self._is_used = True
        start = int((self._start or datetime.now(UTC)).timestamp()) * SECOND
        warm_up = self._topics.longest_burst_s * SECOND
        self._clock = VirtualClock(start - warm_up)
        with ExitStack() as undo:
            loop_time = undo.enter_context(self._clock.in_use(loop, self._seed))
            running = self._running = RunningNode(
                self._app,
                self._topics,
                self._clock.unix_ns,
                self._priorities,
                self._concurrency,
                self._subscription,
            )
            self._driver = Driver(self._clock, loop_time, running, self._patience_s)
            await self._driver.run(running.start())
            await self._driver.advance(self._clock.now + warm_up)
            self._undo = undo.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        undo, self._undo = self._undo, None
        if undo is None or self._running is None:  # abandoned
            return
        if error is not None:
            self._driver.give_up()
        with undo:
            await self._driver.run(self._running.stop())

    def abandon(self) -> None:
        """Restore the clock without ending the application, after a test that has forgotten to. No effect otherwise."""
        if self._undo is not None:
            self._undo.close()
            self._undo = None

    @property
    def _node(self) -> RunningNode:
        """Raises ConfigError outside of `async with`, EvenlaneError if the node has ended."""
        if self._running is None or self._undo is None:
            raise ConfigError(_NOT_OPEN)
        self._running.check()
        return self._running

    # ---- what a test does

    async def put(
        self,
        project: str,
        body: Any = b"",
        *,
        priority: str | None = None,
        key: str | None = None,
        group: int | None = None,
        delay: float | None = None,
        due: int | datetime | None = None,
        ttl: float | None = None,
        id: str | None = None,  # noqa: A002 - the name in the public surface
        headers: Mapping[str, str] | None = None,
    ) -> Receipt:
        """Put one message; arguments, result and errors are those of `Producer.put`. It isn't handled yet."""
        return await self._node.producer.put(
            project, body, priority=priority, key=key, group=group, delay=delay, due=due, ttl=ttl, id=id,
            headers=headers,
        )  # fmt: skip

    async def run_until_idle(self) -> None:
        """Handle messages until nothing can start, run or be retried now. What needs time to pass waits for `advance`:
        delays, retries, quota. If a handler sleeps, the clock moves on until it ends.

        Raises EvenlaneError, which is an AssertionError as well, if a handler doesn't end.
        """
        node = self._node
        node.release()
        try:
            await self._driver.jump_while(lambda: node.has_work_now, _LONGEST_S)
        finally:
            node.hold()
        node.check()

    async def advance(self, seconds: float) -> None:
        """Let time pass. Everything that becomes possible meanwhile happens, in order, each at its own instant.

        Raises ConfigError for a number below 0, EvenlaneError if a handler doesn't end.
        """
        is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
        if not is_number or not isfinite(seconds) or seconds < 0:
            raise ConfigError(f"advance({seconds!r}) is not valid: give seconds from 0")
        node = self._node
        node.release()
        try:
            await self._driver.advance(self._clock.now + round(seconds * SECOND))
        finally:
            node.hold()
        node.check()

    async def replay(self, project: str) -> int:
        """Put the dead letters of a project again, as `evenlane dlq replay` does. Returns their number.

        Raises UnknownProject, EvenlaneError.
        """
        accepted = self._topics.get(project)
        if accepted is None:
            raise UnknownProject.of(project, ENV)
        node = self._node
        config, now = node.node.cluster_config, self._clock.unix_ns()
        found = [each for each in node.dead_letters if each.project == project]
        for each in found:
            copy = dead_letters.replay(each, node.cluster, accepted, config, now)
            await self._driver.run(node.replay(each, copy))
        return len(found)

    # ---- what a test sees; also after the end

    @property
    def now(self) -> datetime:
        """The time, by the clock of the test."""
        return datetime.fromtimestamp(self._seen.store.now() / SECOND, UTC)

    @property
    def handled(self) -> list[Message]:
        """The messages whose handler succeeded, in the order in which the handlers ended."""
        return list(self._seen.attempts.handled)

    @property
    def failed(self) -> list[FailedAttempt]:
        """The attempts that failed: `message` and `error`, in the order in which the handlers ended."""
        return list(self._seen.attempts.failed)

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """The dead letters, the oldest first: `project`, `id`, `reason`, `error`, `attempts`, `body` and so on."""
        return self._seen.dead_letters

    def backlog(self, project: str) -> int:
        """The number of messages of a project that wait: for their turn, until they are due, or for another attempt."""
        names.check_project(project)
        node = self._node
        return count_backlog(node.node, project) + node.count_far(project)

    def why(self, project: str) -> dict[str, Any]:
        """Explain why a project's messages wait: the document of `evenlane why --json`. Rates aren't measured. Raises
        InvalidName, UnknownProject.
        """
        topic = self._topics.topic_of(names.check_project(project), self._seen.subscription)
        if topic is None:
            raise UnknownProject.of(project, ENV)
        return explain(self._node.node, project, topic)

    @property
    def _seen(self) -> RunningNode:
        """The node, which may have ended. Raises ConfigError."""
        if self._running is None:
            raise ConfigError(_NOT_OPEN)
        return self._running
