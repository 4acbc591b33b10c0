"""Sends one request to many nodes, and gathers their answers; and the base of clients that do so."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

import structlog

from evenlane.engine.base import names
from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.request_bus import NO_RESPONDERS
from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from contextlib import AbstractAsyncContextManager

    from evenlane.engine.core.request_bus import RequestBus
    from evenlane.ring.coordination.ports import Coordination

_log = structlog.get_logger(__name__)

T = TypeVar("T")


async def scatter(
    bus: RequestBus,
    subject: str,
    nodes: Collection[str],
    read: Callable[[bytes], tuple[str, T]],
    timeout_s: float,
    *,
    body: bytes = b"",
    is_final: Callable[[T], bool] = lambda _answer: True,
    on_answer: Callable[[T], object] = lambda _answer: None,
    is_per_answer: bool = False,
) -> dict[str, T]:
    """Publish `body` to `subject`, and return the last answer of each of these nodes that answers in time.

    Waits until each node has given an answer for which `is_final` returns True, but at most `timeout_s` seconds: in
    total, or with `is_per_answer` after each answer. `read` returns the answering node and its answer; for an
    invalid answer it raises what msgspec raises. `read` and `on_answer` are called on the loop. Raises Unreachable.
    """
    answers: dict[str, T] = {}
    pending = set(nodes)
    arrived = asyncio.Event()

    def on_answer_message(_subject: bytes, _reply: bytes, headers: bytes, body: bytes) -> None:
        if headers.startswith(NO_RESPONDERS):  # no subscriber: the server says so at once
            pending.clear()
            arrived.set()
            return
        try:
            node, answer = read(body)
        except UNREADABLE as error:
            _log.debug("not an answer", error=str(error))
            return
        if node in nodes:  # another node may still believe that it owns partitions
            answers[node] = answer
            (pending.discard if is_final(answer) else pending.add)(node)
            on_answer(answer)
        arrived.set()

    inbox = bus.new_inbox()
    listening = bus.listen(inbox, on_answer_message)
    try:
        bus.send(subject, body, reply=inbox)
        async with asyncio.timeout(timeout_s) as limit:
            while pending:
                arrived.clear()
                await arrived.wait()
                if is_per_answer:
                    limit.reschedule(asyncio.get_running_loop().time() + timeout_s)
    except Disconnected as error:
        raise Unreachable(str(error)) from error
    except TimeoutError:
        pass
    finally:
        bus.unlisten(listening)
    return answers


class NodesClient:
    """A client that reads etcd and asks the nodes of a cluster. `line()` returns a connection for the duration of one
    request; it raises Unreachable. A node that hasn't answered within `timeout_s` counts as silent.
    """

    timeout_s: float

    def __init__(
        self,
        etcd: Coordination,
        cluster: str,
        line: Callable[[], AbstractAsyncContextManager[RequestBus]],
        *,
        timeout_s: float | None = None,
    ) -> None:
        self._etcd, self._cluster, self._line = etcd, cluster, line
        self._env = names.env_of(cluster)
        if timeout_s is not None:
            self.timeout_s = timeout_s
