"""Responds on `ask.<cluster>.empty`: which of the requested groups have messages in this node's partitions."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import structlog

from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.records.group_gc_messages import GroupRequest, subject
from evenlane.engine.core.request_bus import INBOX
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.node.services.group_inspector import GroupInspector

if TYPE_CHECKING:
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.node.node import Node

_log = structlog.get_logger(__name__)

_AT_ONCE = 4  # requests; further ones get no answer


class GroupResponder:
    """Call `listen` on an open connection, and `close` before it is closed. A node without partitions
    doesn't answer.
    """

    def __init__(self, connection: RequestBus, cluster: str, node: Node) -> None:
        self._connection, self._cluster, self._node = connection, cluster, node
        self._inspector = GroupInspector(node)
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self) -> None:
        self._connection.listen(subject(self._cluster), self._on_request)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_request(self, _subject: bytes, _reply: bytes, _headers: bytes, body: bytes) -> None:
        if not self._node.partitions or len(self._tasks) >= _AT_ONCE:
            return
        try:
            ask = msgspec.json.decode(body, type=GroupRequest)
        except UNREADABLE as error:
            _log.debug("not a question", error=str(error))
            return
        if not ask.reply.startswith(INBOX) or not ask.reply.isascii() or not ask.reply.isprintable():
            return  # otherwise a requester could make a node write to any subject
        task = asyncio.create_task(self._answer(ask), name="empty")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, ask: GroupRequest) -> None:
        try:
            reply = await self._inspector.inspect(ask)
            self._connection.send(ask.reply, msgspec.json.encode(reply))
        except Disconnected:
            _log.debug("whoever asked is out of reach")
        except Exception:  # noqa: BLE001 - a defect here must not end the node
            _log.exception("which groups are empty could not be told")
