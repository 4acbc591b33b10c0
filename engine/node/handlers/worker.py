"""A worker: one slot of the node, in a task of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from evenlane.engine.core.message.message import Message

NOTHING: list[Message] = []  # of a worker that handles nothing; nobody changes it


class Worker:
    """`messages` is what it works on now, in a thread if it is `threaded`."""

    __slots__ = ("messages", "parked", "task", "threaded")

    def __init__(self) -> None:
        self.messages: list[Message] = NOTHING
        self.threaded = False
        self.task: asyncio.Task[None] | None = None
        self.parked: asyncio.Future[None] | None = None
