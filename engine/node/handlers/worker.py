"""The node's workers: one per slot, with the messages that it handles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.engine.core.message.message import Message

NOTHING: list[Message] = []  # the messages of an idle worker; shared, and never modified


class Worker:
    """One slot. `messages` are those being handled, in a thread if `threaded` is set; `awaited` is then the task in the
    event loop for which the thread waits, None if it doesn't.
    """

    __slots__ = ("awaited", "messages", "task", "threaded")

    def __init__(self) -> None:
        self.messages: list[Message] = NOTHING
        self.threaded = False
        self.task: asyncio.Task[None] | None = None
        self.awaited: asyncio.Task[Any] | None = None


class Workers:
    """All workers of a node. Only the worker pool writes; other parts read which messages run.

    Invariant: `busy` is the number of workers that have messages; `WorkerPool` changes both together.
    """

    def __init__(self, count: int) -> None:
        self.all = [Worker() for _ in range(count)]
        self.busy = 0

    @property
    def running(self) -> list[Message]:
        """The messages that are being handled now."""
        return [message for worker in self.all for message in worker.messages]

    def list_running(self, lane: Lane) -> list[int]:
        """The lane's messages whose handlers haven't ended. One in a hung thread has failed already."""
        return [
            message.sequence
            for worker in self.all
            for message in worker.messages
            if message.lane is lane
            and message.generation == lane.generation
            and not (message.timed_out and worker.threaded)
        ]

    def find_messages(self, task: asyncio.Task[Any]) -> list[Message]:
        """The messages that the worker in a task handles. Thread-safe."""
        return next((worker.messages for worker in self.all if worker.task is task), [])
