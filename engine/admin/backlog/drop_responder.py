"""Node's side of `evenlane backlog purge` and `cancel`: serves requests on `ask.<cluster>.drop.<project>`."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import structlog

from evenlane.engine.admin.backlog.drop import DropTask
from evenlane.engine.admin.backlog.drop_client import DropRequest, subject
from evenlane.engine.base import names
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.request_bus import INBOX
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import InvalidName

if TYPE_CHECKING:
    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.engine.node.node import Node

_log = structlog.get_logger(__name__)

_SIGN_S = 1.0  # between two progress reports
_AT_ONCE = 8  # concurrent requests; further ones get no answer


class DropResponder:
    """Serves drop requests on a node: call `listen` on an open connection, and `close` before that is closed. A node
    without partitions doesn't answer.
    """

    def __init__(self, connection: RequestBus, cluster: str, node: Node) -> None:
        self._connection, self._cluster, self._node = connection, cluster, node
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self) -> None:
        self._connection.listen(subject(self._cluster, "*"), self._on_request)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_request(self, asked: bytes, reply: bytes, _headers: bytes, body: bytes) -> None:
        if not reply.startswith(INBOX.encode()) or not self._node.partitions or len(self._tasks) >= _AT_ONCE:
            return
        try:
            project = names.check_project(asked.rpartition(b".")[2].decode("utf-8", "replace"))
            ask = msgspec.json.decode(body, type=DropRequest)
        except (InvalidName, *UNREADABLE) as error:
            _log.debug("not a request to drop", error=str(error))
            return
        task = asyncio.create_task(self._answer(project, ask, reply.decode("utf-8", "replace")), name="drop")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, project: str, ask: DropRequest, reply: str) -> None:
        dropping = DropTask(self._node, project, ask)
        work = asyncio.create_task(dropping.run(), name="dropping")
        try:
            while not work.done():
                await asyncio.wait([work], timeout=_SIGN_S)
                if not work.done():
                    self._reply(reply, dropping)
            work.result()
            _log.info(
                "dropped",
                project=project,
                what="these" if ask.targets is not None else ask.priority or "all",
                messages=dropping.word.dropped,
                partitions=dropping.word.partitions,
            )
            self._reply(reply, dropping)
        except Exception:  # noqa: BLE001 - a defect here must not end the node
            _log.exception("a request to drop could not be carried out", project=project)
        finally:
            work.cancel()

    def _reply(self, reply: str, dropping: DropTask) -> None:
        try:
            self._connection.send(reply, msgspec.json.encode(dropping.word))
        except Disconnected:
            _log.debug("whoever asked is out of reach")
