"""Which queues something may have happened to, so that nobody looks in turn at those where nothing does.

A message that comes into a queue with an empty hand is noted here, once; whoever looks at queues periodically has a
watch, looks at what is in it, and lets go of a queue when it is silent. So a period costs what is active, not what
exists.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from evenlane.engine.core.queue.queue import Queue


class Watch:
    """One observer's queues: all to which something may have happened that it has not seen. Ends with `close`."""

    def __init__(self, activity: Activity, queues: Iterable[Queue]) -> None:
        self._activity = activity
        self.queues: dict[Queue, None] = dict.fromkeys(queues)  # in the order in which they came

    def let_go(self, queue: Queue) -> None:
        """It is silent, and the observer has seen all that it counted; it comes back with its next message."""
        self.queues.pop(queue, None)
        self._activity.let_go(queue)

    def take(self) -> dict[Queue, None]:
        """All that came since this was asked last; the observer keeps account of them until it lets go of them."""
        taken = self.queues
        if taken:
            self.queues = {}
        return taken

    def close(self) -> None:
        self._activity.close(self)


class Activity:
    """Invariant: a queue of the node that is not `noted` holds no message, and its next one will be noted; one that is
    `noted` is in every watch whose observer has not let go of it since.
    """

    def __init__(self) -> None:
        self.noted: set[Queue] = set()
        self._watches: list[Watch] = []

    def watch(self, queues: Iterable[Queue] = ()) -> Watch:
        """A new observer, which has seen nothing of these queues yet."""
        watch = Watch(self, queues)
        self._watches.append(watch)
        return watch

    def note(self, queue: Queue) -> None:
        """Something happens to it that no observer would see otherwise: it gets a message into an empty hand, say."""
        if queue not in self.noted:
            self.noted.add(queue)
            for watch in self._watches:
                watch.queues[queue] = None

    def let_go(self, queue: Queue) -> None:
        """An observer looks at it no more: all are told of its next message."""
        self.noted.discard(queue)

    def forget(self, queues: Collection[Queue]) -> None:
        """They are the node's no more."""
        self.noted.difference_update(queues)
        for watch in self._watches:
            for queue in queues:
                watch.queues.pop(queue, None)

    def close(self, watch: Watch) -> None:
        if watch in self._watches:
            self._watches.remove(watch)


def is_silent(queue: Queue, running: Collection[Queue]) -> bool:
    """Whether nothing of it waits or is in flight, so that its counters stay as they are until its next message comes.
    `running` are the queues of all messages in flight.
    """
    return not (queue.backlog or queue.loading or queue in running)
