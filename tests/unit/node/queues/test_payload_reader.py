"""Reading payloads from the store: small reads don't wait for large ones (E5, M)."""

import asyncio
from types import SimpleNamespace

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.log_state import LogState
from evenlane.engine.core.ports import LaneState, Stored
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.queue.queue_rules import QueueRules
from evenlane.engine.node.queues.owned_lanes import OwnedLanes
from evenlane.engine.node.queues.payload_memory import PayloadMemory
from evenlane.engine.node.queues.payload_reader import PayloadReader
from tests.support.lane_host import Host
from tests.support.until import until

KIB, MIB = 1 << 10, 1 << 20
LANE, LATER = LaneId("lanes", 1), LaneId("later", 1)


class Reading:
    """A lane whose payloads are in the store, which answers large reads once `answer` is set. `asked` has the project
    and the sequences of each read.
    """

    incarnation, max_payload = 0, MIB

    def __init__(self, **limits) -> None:
        self.limits = MemoryBudget(**limits)
        self.asked: list[tuple[str, list[int]]] = []
        self.answer = asyncio.Event()
        self.lane = FedLane(LANE, 1, self.limits, Host(self.open))
        self.lane.recover(LogState(), LaneState("s", 0, 0, 0), None)
        self.later = FedLane(LATER, 1, self.limits, Host(self.open))
        self.memory = PayloadMemory(self.limits, None)
        lanes = OwnedLanes()
        lanes.lanes[1] = self.lane, self.later
        self.reader = PayloadReader(
            self, self.memory, lanes, "online", on_ready=lambda _: None, on_missing=lambda *_: None,
            on_short=lambda: None,
        )  # fmt: skip
        self.owner_of: dict[int, tuple[str, int]] = {}

    def open(self, _lane, subject, _entry) -> Queue:
        queue = Queue(subject.decode(), 0, "mid", 1, 1)
        queue.rules = QueueRules(asleep=False)
        return queue

    def arrive(self, project: str, size: int) -> Queue:
        """Deliver a message without its body, and read its queue."""
        sequence = self.lane.position + 1
        self.owner_of[sequence] = project, size
        self.lane.take_in_head(project.encode(), sequence, 1, b"", size)
        queue = self.lane.queues[project.encode()]
        self.reader.want(queue)
        return queue

    async def get(self, _lane, sequences):
        project, size = self.owner_of[sequences[0]]
        self.asked.append((project, list(sequences)))
        if size > KIB:
            await self.answer.wait()
        return [Stored(sequence, 1, project, b"", b"x" * size) for sequence in sequences]


@pytest.fixture
async def reading():
    made = Reading()
    yield made
    await made.reader.stop()


async def test_small_read_waits_for_at_most_four_large_ones(reading):
    """Forty queues of a flood ask first."""
    for number in range(40):
        reading.arrive(f"flood-{number}", MIB)
    small = reading.arrive("small", 10)
    await until(lambda: small.ready)
    assert ["flood-0", "flood-1", "flood-2", "flood-3", "small"] == [project for project, _ in reading.asked]
    reading.answer.set()
    await until(lambda: len(reading.asked) == 41, what="the others, one after the other")


async def test_large_messages_leave_room_for_small_ones():
    """All payloads in memory belong to the flood, and none is handled."""
    reading = Reading(payload_bytes=8 * MIB)
    reading.answer.set()
    flood = [reading.arrive(f"flood-{number}", MIB) for number in range(20)]
    await until(lambda: reading.limits.used_bytes >= 6 * MIB)
    small = reading.arrive("small", 10)
    await until(lambda: small.ready)
    assert 6 == sum(len(queue.ready) for queue in flood)
    assert reading.memory.starved
    await reading.reader.stop()


async def test_reads_resume_when_memory_is_freed():
    reading = Reading(payload_bytes=8 * MIB)
    reading.answer.set()
    flood = [reading.arrive(f"flood-{number}", MIB) for number in range(10)]
    for _ in flood:
        await until(lambda: any(queue.ready for queue in flood))
        next(queue for queue in flood if queue.ready).take(reading.limits)
        if reading.memory.starved:
            reading.memory.wake_reads()
    assert 10 == len(reading.asked)
    assert not reading.memory.starved
    await reading.reader.stop()


def test_unread_message_counts_with_its_size():
    """So a read of large messages has few of them."""
    reading = SimpleNamespace(limits=MemoryBudget())
    queue = Queue("acme", 0, "mid", 1, 1)
    queue.rules = QueueRules(asleep=False)
    assert queue.arrive_unread(1, MIB, reading.limits)
    assert (MIB, 1, [], True) == (queue.mean_size, queue.unread, queue.ready, queue.behind)
