"""Node's side of a question to all nodes: one answer for all clients that ask within half a second."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.request_bus import INBOX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from evenlane.engine.core.request_bus import RequestBus

_log = structlog.get_logger(__name__)

FRESH_NS = 500_000_000
_AT_ONCE = 64  # requests per `fresh_ns`; further ones get no answer


class SharedResponder:
    """Answers requests on one subject: call `listen` on an open connection, and `close` before that is closed. `build`
    makes an answer; its errors are logged, and end nothing. `name` is that of the task.

    Invariants: `_body` is the answer made at `_made_at`; the task `_task` runs while `_replies` has clients to answer.
    """

    def __init__(
        self,
        connection: RequestBus,
        subject: str,
        build: Callable[[], Awaitable[bytes]],
        name: str,
        *,
        fresh_ns: int = FRESH_NS,
    ) -> None:
        self._connection, self._subject, self._build, self._name = connection, subject, build, name
        self._fresh_ns = fresh_ns
        self._body, self._made_at = b"", 0
        self._replies: list[str] = []
        self._counted, self._since = 0, 0
        self._task: asyncio.Task[None] | None = None

    def listen(self) -> None:
        self._connection.listen(self._subject, self._on_request)

    async def close(self) -> None:
        """Close. No effect if it never listened."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _on_request(self, _subject: bytes, reply: bytes, _headers: bytes, _body: bytes) -> None:
        name = reply.decode("ascii", "replace")
        if not name.startswith(INBOX) or not name.isascii() or not name.isprintable() or self._count_request(now_ns()):
            return
        self._replies.append(name)
        if self._task is None:
            self._task = asyncio.create_task(self._answer(), name=self._name)

    def _count_request(self, now: int) -> bool:
        """Count a request; return whether it is one too many."""
        if now - self._since >= self._fresh_ns:
            self._since, self._counted = now, 0
        self._counted += 1
        return self._counted > _AT_ONCE

    async def _answer(self) -> None:
        """Build an answer if needed, and send it to all clients that have asked by then."""
        try:
            if not self._body or now_ns() - self._made_at >= self._fresh_ns:
                self._body = await self._build()
                self._made_at = now_ns()
            while self._replies:
                self._connection.send(self._replies.pop(), self._body)
        except Disconnected:
            _log.debug("whoever asked is out of reach", subject=self._subject)
        except Exception:  # noqa: BLE001 - a defect here must not end the node
            _log.exception("a question to all nodes could not be answered", subject=self._subject)
        finally:
            self._replies.clear()
            self._task = None
