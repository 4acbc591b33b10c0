"""The partitions that a node serves, and their lanes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.node.partitions.partition import Partition

if TYPE_CHECKING:
    from evenlane.engine.node.queues.owned_lanes import OwnedLanes


class PartitionTable(dict[int, Partition]):
    """The partitions that are open or being opened, by number. Change it by `put`, `serve` and `remove` only.

    Invariant: a number is in `lanes` exactly if it is here, with the lanes of that partition.
    """

    def __init__(self, lanes: OwnedLanes) -> None:
        super().__init__()
        self._lanes = lanes

    def has(self, partition: Partition) -> bool:
        """Whether the table has this very object, and not a partition of the same number from another epoch or try."""
        return self.get(partition.number) is partition

    def put(self, partition: Partition) -> None:
        """Add a partition that is being opened."""
        self[partition.number] = partition
        self._lanes.lanes[partition.number] = partition.lanes

    def serve(self, partition: Partition) -> None:
        """Let messages of the partition start, unless it was revoked while it was being opened."""
        if self.has(partition):
            self._lanes.serve(partition.number, partition.catch_up_priority)

    def remove(self, number: int) -> Partition | None:
        """Let no more messages of the partition start. Returns it, None if there is none."""
        partition = self.pop(number, None)
        if partition is not None:
            self._lanes.remove(number)
        return partition
