"""Tracks active queues, so that periodic observers needn't visit idle ones.

A message that enters a queue without ready messages is noted here, once. An observer that visits queues periodically
has a watch, visits the queues in it, and releases a queue when it is silent. The cost of a period thus depends on the
number of active queues, not of all queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from evenlane.engine.core.queue.queue import Queue


class ActivityWatch:
    """One observer's queues: all queues with activity that it may not have seen. `close` ends it."""

    def __init__(self, activity: Activity, queues: Iterable[Queue]) -> None:
        self._activity = activity
        self.queues: dict[Queue, None] = dict.fromkeys(queues)  # in order of arrival

    def release(self, queue: Queue) -> None:
        """Release a silent queue that the observer has fully accounted for; its next message brings it back."""
        self.queues.pop(queue, None)
        self._activity.release(queue)

    def take_changed(self) -> dict[Queue, None]:
        """Take all queues that came since the last call. The observer keeps track of them itself until it
        releases them.
        """
        taken = self.queues
        if taken:
            self.queues = {}
        return taken

    def close(self) -> None:
        self._activity.close(self)


class Activity:
    """The queues with activity, and the watches on them.

    Invariant: a queue of the node that isn't in `noted` holds no message, and its next one will be noted. A queue in
    `noted` is in every watch whose observer hasn't released it since.
    """

    def __init__(self) -> None:
        self.noted: set[Queue] = set()
        self._watches: list[ActivityWatch] = []

    def watch(self, queues: Iterable[Queue] = ()) -> ActivityWatch:
        """Add an observer that hasn't seen anything of these queues yet."""
        watch = ActivityWatch(self, queues)
        self._watches.append(watch)
        return watch

    def note(self, queue: Queue) -> None:
        """Note activity that no observer would see otherwise, such as the first message of an empty queue."""
        if queue not in self.noted:
            self.noted.add(queue)
            for watch in self._watches:
                watch.queues[queue] = None

    def release(self, queue: Queue) -> None:
        """Release a queue for one observer: all observers will be notified of its next message."""
        self.noted.discard(queue)

    def discard(self, queues: Collection[Queue]) -> None:
        """Remove queues that the node no longer owns."""
        self.noted.difference_update(queues)
        for watch in self._watches:
            for queue in queues:
                watch.queues.pop(queue, None)

    def close(self, watch: ActivityWatch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)


def is_silent(queue: Queue, running: Collection[Queue]) -> bool:
    """Whether the queue has no message waiting or in flight, so that its counters stay unchanged until its next
    message. `running` are the queues of all messages in flight.
    """
    return not (queue.backlog or queue.loading or queue in running)
