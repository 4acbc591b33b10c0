"""The lanes of the partitions that the node owns, and which queues of them must wait for their partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.core.queue.queue import Queue
    from evenlane.engine.node.queues.catch_up_priority import CatchUpPriority


class OwnedLanes:
    """By number of partition. Only `OwnedPartitions` changes it.

    Invariant: a partition that serves is among `lanes`.
    """

    def __init__(self) -> None:
        self.lanes: dict[int, tuple[FedLane, FedLane]] = {}  # the lane and the delay stream; open, or being opened
        self._serving: dict[int, CatchUpPriority] = {}

    def serve(self, number: int, priority: CatchUpPriority) -> None:
        """From now on messages of the partition may start, as far as `priority` allows."""
        self._serving[number] = priority

    def remove(self, number: int) -> None:
        """Nothing of the partition starts any more."""
        self.lanes.pop(number, None)
        self._serving.pop(number, None)

    def serves(self, number: int) -> bool:
        """Whether messages of the partition may start."""
        return number in self._serving

    def wait_reason(self, queue: Queue) -> str | None:
        """Why no message of the queue may start, if its partition is why: it isn't taken over yet, or messages of a
        higher priority may still be in the backlog that comes in.
        """
        priority = self._serving.get(queue.partition)
        if priority is None:
            return "no_owner"
        return "higher_priority" if priority.must_wait(queue) else None

    def defer(self, queue: Queue) -> bool:
        """Whether no message of the queue may start yet, for such a reason; it becomes ready again when one may."""
        priority = self._serving.get(queue.partition)
        return priority is None or priority.defer(queue)
