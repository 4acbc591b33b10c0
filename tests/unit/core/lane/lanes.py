"""Lanes without a node, for tests of their single steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.lane.log_state import LogState
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.queue.queue_rules import QueueRules
from tests.support.lane_host import Host
from tests.support.lane_owner import LANE

if TYPE_CHECKING:
    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.settle_log import Append


def opened(_lane: object, subject: bytes, _entry: object) -> Queue:
    """A queue that is neither paused nor without a topic."""
    queue = Queue(subject.decode(), 0, "mid", 1, 3)
    queue.rules = QueueRules(asleep=False)
    return queue


def lane_of(lane: LaneId = LANE, open_queue=opened) -> FedLane:
    """A lane of an empty stream, owned under epoch 1."""
    made = FedLane(lane, 1, MemoryBudget(), Host(open_queue))
    made.recover(LogState(), LaneState("s", 0, 0, 0), None)
    return made


def acked(lane: FedLane, now: int = 0) -> Append:
    """The lane's next record, acknowledged by the log."""
    append = lane.next_append(now)
    lane.log.on_append(append)
    return append
