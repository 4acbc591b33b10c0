"""Reading ahead in a backlog whose messages are removed meanwhile."""

from types import SimpleNamespace

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.log_state import LogState
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.queue.queue_rules import QueueRules
from evenlane.engine.node.partitions.read_ahead import ReadAhead
from tests.support.lane_host import Host

FIRST, SECOND = b"lanes.online.1.acme.0.mid", b"lanes.online.1.other.0.mid"


async def test_queue_without_remaining_messages_does_not_stop_reading_ahead():
    """E5: the feed has delivered one of its two messages, and the other one was removed."""
    asked = []

    async def next_of(_lane, subject, _start, _most):
        asked.append(subject.encode())
        return []

    queues = {subject: Queue(subject.decode(), 0, "mid", 1, 1) for subject in (FIRST, SECOND)}
    queues[FIRST].rules = QueueRules(asleep=False)
    lane = FedLane(
        LaneId("lanes", 1), 1, MemoryBudget(), Host(lambda _lane, subject, _entry: queues[subject], lambda _queue: None)
    )
    lane.recover(LogState(), LaneState("x", 1, 9_000, 1), None)
    lane.expect_backlog({FIRST.decode(): 2, SECOND.decode(): 8_998}, 9_000)
    lane.take_in(FIRST, 1, 1, b"", b"a")
    await ReadAhead(SimpleNamespace(next_of=next_of)).read(lane, [FIRST, SECOND], lambda _queue: None)
    assert {FIRST, SECOND} == set(asked)
    assert not lane.is_lacking(FIRST)
