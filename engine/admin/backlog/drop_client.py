"""The command's side of dropping: one question to the nodes that own something, and what they say until they are done.

A drop may take a while, so a node that is at it says so each second.
"""

from __future__ import annotations

import asyncio
from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec
import structlog

from evenlane.engine.core.wire.decode_error import UNREADABLE
from evenlane.engine.errors import Unreachable
from evenlane.engine.store.jetstream.client.connection import Disconnected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from evenlane.engine.store.jetstream.client.connection import Connection

_log = structlog.get_logger(__name__)


class DropTarget(msgspec.Struct, frozen=True):
    """One message; `at` is its time of arrival, by which it is told from another that got its sequence."""

    kind: str
    partition: int
    sequence: int
    at: int


class DropRequest(msgspec.Struct):
    """Drop all that waits of the project, of one priority if it is given; or these messages, whatever else waits."""

    priority: str | None = None
    targets: list[DropTarget] | None = None


class DropProgress(msgspec.Struct):
    """What a node says. `partitions` are those that it has gone through, once it is `done`; `busy` counts messages that
    were being handled (of the whole project's, or of the targets), `gone` targets that are settled or not there.
    """

    node: str
    done: bool = False
    dropped: int = 0
    busy: int = 0
    gone: int = 0
    partitions: list[int] = []
    problem: str = ""


def subject(env: str, project: str) -> str:
    """What is published to have something of a project dropped; `*` for all projects."""
    return f"ask.{env}.drop.{project}"


async def gather(
    connection: Connection,
    env: str,
    project: str,
    ask: DropRequest,
    nodes: Iterable[str],
    silent_s: float,
    tell: Callable[[int], object] = lambda _dropped: None,
) -> dict[str, DropProgress]:
    """The last word of each of these nodes that said something, by its id; waits for more as long as somebody says
    something every `silent_s` seconds. `tell` gets how many messages they have dropped. Raises Unreachable.
    """
    wanted = set(nodes)
    heard: dict[str, DropProgress] = {}
    news = asyncio.Event()

    def take(_subject: bytes, _reply: bytes, headers: bytes, body: bytes) -> None:
        if headers.startswith(b"NATS/1.0 503"):  # nobody listens: the server says so at once
            wanted.clear()
        else:
            try:
                word = msgspec.json.decode(body, type=DropProgress)
            except UNREADABLE as error:
                _log.debug("not an answer", error=str(error))
                return
            if word.node in wanted:
                heard[word.node] = word
                tell(sum(each.dropped for each in heard.values()))
        news.set()

    inbox = f"_INBOX.{token_hex(11)}"
    sid = connection.listen(inbox, take)
    try:
        connection.send(subject(env, project), msgspec.json.encode(ask), reply=inbox)
        while not all(node in heard and heard[node].done for node in wanted):
            news.clear()
            async with asyncio.timeout(silent_s):
                await news.wait()
    except Disconnected as error:
        raise Unreachable(str(error)) from error
    except TimeoutError:
        pass
    finally:
        connection.unlisten(sid)
    return heard
