"""Live feed of the cluster: all viewers share one overview per second; without viewers none is requested.

Nodes remember the last two minutes. They are asked for them when the first viewer comes.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
import structlog
from sse_starlette import ServerSentEvent

from evenlane.engine.base.aio.single_flight import SingleFlight
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.http.recent_history import RecentHistory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

    from evenlane.engine.admin.history.merge import PastSecond

_log = structlog.get_logger(__name__)

_Kind = Literal["overview", "history", "trouble"]

_EVERY_S = 1.0
_AGAIN_MS = 1_000  # a browser reconnects after this time
_FRESH_NS = 500_000_000
_MOST_VIEWERS = 32


class FeedUpdate(NamedTuple):
    """An event: an overview, the history, or a sentence that says why there is none. `event` is its encoded form."""

    kind: _Kind
    event: bytes


class Viewer:
    """A viewer with a buffer of one event: a slow one gets the newest event, and misses others. `past` makes the event
    with the history. `leave` frees its place.
    """

    def __init__(
        self,
        past: Callable[[], Awaitable[FeedUpdate]],
        newest: FeedUpdate | None,
        on_leave: Callable[[Viewer], None],
    ) -> None:
        self._past, self._newest, self._on_leave = past, newest, on_leave
        self._changed = asyncio.Event()
        self._over = False
        if newest is not None:
            self._changed.set()

    def show(self, update: FeedUpdate) -> None:
        self._newest = update
        self._changed.set()

    def end(self) -> None:
        self._over = True
        self._changed.set()

    def leave(self) -> None:
        """Leave. No effect if already done."""
        self._on_leave(self)

    async def looks(self) -> AsyncIterator[FeedUpdate]:
        """Yield the history, then an overview about once a second."""
        yield await self._past()
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._over:
                return
            if self._newest is not None:
                yield self._newest


class _EncodedOverview(NamedTuple):
    body: bytes
    update: FeedUpdate


class LiveFeed:
    """Shares overviews among all viewers. `overview` requests one, `history` the last two minutes; both may raise
    EvenlaneError. `close` ends all viewers.

    Invariants: the task `_watching` runs while there are viewers, until `close`. `_is_whole` says that the history was
    requested since it began.
    """

    def __init__(
        self,
        overview: Callable[[], Awaitable[dict[str, Any]]],
        history: Callable[[], Awaitable[Sequence[PastSecond]]],
        *,
        every_s: float = _EVERY_S,
        fresh_ns: int = _FRESH_NS,
        most_viewers: int = _MOST_VIEWERS,
    ) -> None:
        self._overview, self._past, self._every_s, self._most_viewers = overview, history, every_s, most_viewers
        self._history = RecentHistory()
        self._is_whole, self._filling = False, asyncio.Lock()
        self._viewers: set[Viewer] = set()
        self._shared = SingleFlight(self._sample, fresh_ns=fresh_ns)
        self._last: FeedUpdate | None = None
        self._watching: asyncio.Task[None] | None = None
        self._closed = False

    async def now(self) -> bytes:
        """Return an overview in JSON, at most half a second old. Raises EvenlaneError."""
        return (await self._shared.read()).body

    def watch(self) -> Viewer:
        """Add a viewer, which counts until it leaves. Raises EvenlaneError if there are too many."""
        if self._closed:
            raise EvenlaneError("the node is shutting down")
        if len(self._viewers) >= self._most_viewers:
            raise EvenlaneError(f"{self._most_viewers} viewers are already watching this node: use another one")
        if self._watching is None:
            self._last = None
            self._watching = asyncio.create_task(self._watch(), name="watching")
        viewer = Viewer(self._read_history, self._last, self._on_leave)
        self._viewers.add(viewer)
        return viewer

    def _on_leave(self, viewer: Viewer) -> None:
        self._viewers.discard(viewer)
        if not self._viewers and self._watching is not None:
            self._watching.cancel()
            self._watching = None
            self._is_whole = False

    async def close(self) -> None:
        self._closed = True
        for viewer in self._viewers:
            viewer.end()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            began = asyncio.get_running_loop().time()
            self._last = await self._look()
            for viewer in self._viewers:
                viewer.show(self._last)
            await asyncio.sleep(max(0.1, began + self._every_s - asyncio.get_running_loop().time()))

    async def _read_history(self) -> FeedUpdate:
        if not self._closed:
            async with self._filling:
                if not self._is_whole:
                    await self._fill()
        return await asyncio.to_thread(_build_past, self._history.copy())

    async def _fill(self) -> None:
        """Request the history. If there is none, viewers see what has been looked at since."""
        try:
            past = await self._past()
        except EvenlaneError as error:
            _log.debug("the history could not be read", error=str(error))
        except Exception:  # noqa: BLE001 - the overviews tell viewers what is wrong
            _log.exception("the history could not be read")
        else:
            self._history.put_before(past)
            self._is_whole = self._watching is not None

    async def _look(self) -> FeedUpdate:
        try:
            return (await self._shared.read()).update
        except EvenlaneError as error:
            return _trouble(" ".join(str(error).split()))
        except Exception:  # noqa: BLE001 - viewers get a trouble event, and the next attempt may succeed
            _log.exception("the cluster could not be looked at")
            return _trouble("the node could not get an overview of the cluster: see its log")

    async def _sample(self) -> _EncodedOverview:
        document = await self._overview()
        self._history.add(document, time.time_ns())
        return await asyncio.to_thread(_encode_overview, document)


def _encode_overview(document: dict[str, Any]) -> _EncodedOverview:
    body = _encode(document)
    return _EncodedOverview(body, _update("overview", body))


def _build_past(before: RecentHistory) -> FeedUpdate:
    return _update("history", _encode(before.document()))


def _trouble(sentence: str) -> FeedUpdate:
    return _update("trouble", _encode({"error": sentence}))


def _encode(document: object) -> bytes:
    return msgspec.json.encode(document)


def _update(kind: _Kind, body: bytes) -> FeedUpdate:
    """Encode an event once for all viewers."""
    return FeedUpdate(kind, ServerSentEvent(body.decode(), event=kind, retry=_AGAIN_MS).encode())
