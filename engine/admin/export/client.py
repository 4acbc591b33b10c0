"""Stream reader for synchronous code: a connection with an event loop of its own, which runs only during calls."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Self, TypeVar

import structlog

from evenlane.engine.admin.backlog import scan
from evenlane.engine.base import garbage_collector, log_setup, names
from evenlane.engine.cluster import connections
from evenlane.engine.cluster.subscriptions.registry import no_such_subscription
from evenlane.engine.core.ports import Disconnected, Lost, Refused
from evenlane.engine.errors import EvenlaneError, Unreachable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterator

    from evenlane.engine.base.config.settings import Settings
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.export_port import Range, Read, Stream

T = TypeVar("T")

_NAME = "evenlane report"


class StreamReader:
    """A synchronous reader of streams: `with StreamReader(settings) as reader:`. All methods raise Unreachable if the
    server doesn't answer, and EvenlaneError if it refuses, each with one sentence.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.where = ", ".join(settings.nats_servers)
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if not structlog.is_configured():  # a Spark process, which has no log set-up of ours, and reads many messages
            log_setup.setup(level="warning")
            garbage_collector.tune_gc()
        self._loop = self._open.enter_context(asyncio.Runner())
        self._source = connections.source(self._settings, _NAME)
        try:
            self._run(self._source.open())
        except BaseException:
            self._open.close()
            raise
        self._open.callback(lambda: self._run(self._source.close()))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def streams(self, subjects: str) -> list[Stream]:
        """Return the streams that take any of these subjects."""
        return self._run(self._source.streams(subjects))

    def stream(self, name: str) -> Stream | None:
        return self._run(self._source.stream(name))

    def check_subscription(self, env: str, name: str) -> None:
        """Raises NoSuchSubscription unless the environment has settle logs of this subscription."""
        found = {each.name for each in self.streams("settled.>")}
        known = {names.subscription_of(cluster) for cluster in names.find_clusters(env, found)} - {""}
        if name not in known:
            raise no_such_subscription(name, env, known)

    def sequence_at(self, name: str, at: int) -> int:
        """Return the sequence of the first message that arrived at `at` (unix ns) or later."""
        return self._run(self._source.sequence_at(name, at))

    def read(self, requested: Range) -> Iterator[list[Read]]:
        """Yield the messages in order, page by page; some megabytes are held at a time."""
        pages = self._source.read(requested)
        try:
            while (page := self._run(_next(pages))) is not None:
                yield page
        finally:
            self._run(pages.aclose())

    def view(self, lane: LaneId) -> scan.LaneView:
        """Return the lane and its settled messages."""
        return self._run(self._view(lane))

    async def _view(self, lane: LaneId) -> scan.LaneView:
        store = connections.store(self._settings, _NAME)
        await store.open()
        try:
            return await scan.read_lane_view(store, lane)
        finally:
            await store.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(work)
        except (Disconnected, TimeoutError, Lost) as error:
            raise Unreachable(f"NATS at {self.where} does not answer: {error or 'no answer in time'}") from error
        except Refused as error:
            raise EvenlaneError(f"NATS at {self.where} refuses: {error}") from error


async def _next(pages: AsyncGenerator[list[Read], None]) -> list[Read] | None:
    return await anext(pages, None)
