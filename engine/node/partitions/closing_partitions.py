"""Hands off partitions that the plan takes away: their handlers end, and the rest is reported to the next owner."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from evenlane.engine.core.lane.handoff_state import HandoffState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.queue.fed_lane import FedLane
    from evenlane.engine.node.handlers.worker import Workers
    from evenlane.engine.node.partitions.partition import Partition
    from evenlane.engine.node.settle.outcomes import FailureHandler
    from evenlane.engine.node.settle.settler import Settler

HANDLER_WAIT_S = 0.05  # how long a handoff waits for handlers: short ones needn't be reported in etcd
_CLEAN_END_S = 1.0  # how long a handoff waits for the clean end to be written to the settle log
_LOOK_S = 0.005  # between two checks of whether a partition has ended


class ClosingPartitions:
    """Partitions whose handoff isn't complete, by number and epoch; none of their messages starts any more."""

    def __init__(self, workers: Workers, failures: FailureHandler, settler: Settler) -> None:
        self._workers, self._failures, self._settler = workers, failures, settler
        self._closing: dict[tuple[int, int], Partition] = {}

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._closing.values())

    def get(self, number: int, epoch: int) -> Partition | None:
        return self._closing.get((number, epoch))

    def begin(self, partition: Partition) -> None:
        self._closing[partition.number, partition.lane.epoch] = partition
        for lane in partition.lanes:
            lane.stop([*self._workers.list_running(lane), *self._failures.list_pending(lane)])

    def remove(self, number: int, epoch: int) -> Partition | None:
        return self._closing.pop((number, epoch), None)

    async def hand_off(self, number: int, epoch: int, wait_s: float) -> dict[Kind, HandoffState]:
        """The state that the next owner needs, by kind of stream.

        Handlers have `wait_s` to end; those still running are in the state. A stream is in it, too, if the log
        didn't take the record of its clean end within a second, or its takeover was under way: its mere presence says
        that the end wasn't recorded.
        """
        partition = self.get(number, epoch)
        if partition is None:
            return {}  # it was never opened
        deadline = asyncio.get_running_loop().time() + wait_s
        await asyncio.gather(partition.close(), *(self._close(lane, deadline) for lane in partition.lanes))
        handoffs: dict[Kind, HandoffState] = {}
        for lane in partition.lanes:
            lane.cut_off()
            self._settler.discard(lane)
            if lane.handoff is not None and lane.log.may_have_begun and not lane.log.closed:
                handoffs[lane.id.kind] = (
                    lane.handoff if lane.log.has_begun else HandoffState(lane.generation, lane.seen, set())
                )
        return handoffs if self.remove(number, epoch) is not None else {}  # {}: it was lost meanwhile

    async def _close(self, lane: FedLane, deadline: float) -> None:
        """Write the clean end to the log. Handlers have until `deadline` to end, and the log a second more
        to answer.
        """
        loop = asyncio.get_running_loop()
        while lane.must_close or (not lane.has_ended and loop.time() < deadline):
            if loop.time() >= deadline + _CLEAN_END_S:
                return
            self._settler.flush(lane)
            await asyncio.sleep(_LOOK_S)
