"""The lanes of the partitions that the node owns, and which of their queues must wait for the partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.queues.catch_up_priority import CatchUpPriority


class OwnedLanes:
    """The lanes by partition number. Only `PartitionTable` changes them.

    Invariant: each partition in `_serving` is in `lanes`.
    """

    def __init__(self) -> None:
        self.lanes: dict[int, tuple[FedLane, ...]] = {}  # see `Partition.lanes`; open, or being opened
        self._serving: dict[int, CatchUpPriority] = {}

    def serve(self, number: int, priority: CatchUpPriority) -> None:
        """Let messages of the partition start, as far as `priority` allows."""
        self._serving[number] = priority

    def remove(self, number: int) -> None:
        """Let no more messages of the partition start."""
        self.lanes.pop(number, None)
        self._serving.pop(number, None)

    def is_served(self, number: int) -> bool:
        """Whether messages of the partition may start."""
        return number in self._serving

    def wait_reason(self, queue: Queue) -> str | None:
        """The reason why no message of the queue may start, if the partition is the cause: the takeover isn't complete,
        or the backlog may still hold messages of a higher priority.
        """
        priority = self._serving.get(queue.partition)
        if priority is None:
            return "no_owner"
        return "higher_priority" if priority.must_wait(queue) else None

    def defer(self, queue: Queue) -> bool:
        """Whether no message of the queue may start yet for such a reason. The queue becomes ready again
        when one may.
        """
        priority = self._serving.get(queue.partition)
        return priority is None or priority.defer(queue)
