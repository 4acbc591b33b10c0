"""What a previous owner left among many settled messages is read singly, and a feed begins behind it (K10, E5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from evenlane.engine.base.names import LaneId, lane_subject
from evenlane.engine.core.lane.log_state import LogState
from evenlane.engine.core.lane.settled_set import SettledSet
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.queue.queue_rules import QueueRules
from evenlane.engine.node.partitions.gap_reader import read_gaps
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.lane_host import Host

LANE = LaneId("lanes", 0)
SUBJECT = lane_subject("online", 0, "acme", 0, "mid")
COUNT = 600


class CountingStore(MemoryStore):
    """A store that counts the messages that are read singly."""

    read = 0

    async def get(self, lane: LaneId, sequences: Any) -> Any:
        self.read += len(sequences)
        return await super().get(lane, sequences)


class World:
    """A stream of `COUNT` messages without those in `gone`, and the lane of an owner that takes it over. Its log has
    all but those in `waiting`, up to `highest`.
    """

    async def open(self, waiting: set[int], gone: set[int], highest: int, *, shared: bool = True) -> None:
        self.queue = Queue("acme", 0, "mid", 1, 0)
        self.queue.rules = QueueRules(asleep=False)
        self.store = CountingStore(MemoryServer(), "online")
        await self.store.open()
        await self.store.prepare([LANE])
        for _ in range(COUNT):
            await self.store.put(SUBJECT, b"", b"x")
        for sequence in gone:
            await self.store.delete(LANE, sequence)
        self.state = await self.store.state(LANE)
        settled = SettledSet()
        for sequence in range(1, highest + 1):
            if sequence not in waiting:
                settled.add(sequence)
        self.lane = FedLane(LANE, 2, MemoryBudget(), Host(lambda *_: self.queue))
        self.lane.is_shared = shared
        log = LogState(created=self.state.created, high=highest, settled=settled)
        assert self.lane.recover(log, self.state, None)

    def ready(self) -> list[int]:
        """The messages in the queue."""
        return [entry[1] for entry in self.queue.ready]


def run(work: Any) -> None:
    asyncio.run(work)


waiting_ones = st.sets(st.integers(1, COUNT - 1), max_size=20)


@given(waiting_ones, waiting_ones, st.integers(COUNT - 100, COUNT))
def test_all_that_waits_is_taken_in_and_the_feed_begins_behind(waiting: set[int], gone: set[int], highest: int) -> None:
    """K10, L: in the stream's order; what is gone from the stream counts as settled. Settled messages are still there,
    and so they may be removed later on.
    """

    async def work() -> None:
        world = World()
        await world.open(waiting, gone, highest)
        lane, before = world.lane, world.lane.position
        last = max(last for _, last in lane.settled.above()) if [*lane.settled.above()] else lane.position
        await read_gaps(world.store, lane, world.state)
        left = sorted(each for each in waiting if before < each < last)
        assert world.store.read == len(left)
        assert world.ready() == [each for each in left if each not in gone]
        assert lane.position == last
        assert all(each in lane.settled for each in gone if each <= last)
        held = [each for each in range(before + 1, last + 1) if each not in waiting]
        assert lane.removal.choose_erasable(COUNT) == [each for each in held if each > lane.settled.watermark]

    run(work())


@pytest.mark.parametrize(
    ("waiting", "gone", "shared"),
    [({1}, set(), False), (set(range(1, COUNT, 7)), set(), True), ({1}, set(range(5, COUNT)), True)],
    ids=["no other subscription", "much waits", "little is stored"],
)  # fmt: skip
def test_feed_delivers_what_it_delivers_sooner(waiting: set[int], gone: set[int], shared: bool) -> None:
    """K10: nothing is read singly where that costs more than to pass over settled messages."""

    async def work() -> None:
        world = World()
        await world.open(waiting, gone, COUNT, shared=shared)
        await read_gaps(world.store, world.lane, world.state)
        assert (0, 0, []) == (world.store.read, world.lane.position, world.ready())

    run(work())


def test_it_is_logged() -> None:
    """X10"""

    async def work() -> None:
        world = World()
        await world.open({1, 7}, set(), COUNT)
        with capture_logs() as logs:
            await read_gaps(world.store, world.lane, world.state)
        [line] = [each for each in logs if each["event"] == "read between settled messages"]
        assert (2, COUNT - 1) == (line["messages"], line["passed_over"])

    run(work())


def test_stream_that_is_replaced_meanwhile() -> None:
    """L: what was read belongs to another stream."""

    async def work() -> None:
        world = World()
        await world.open({1}, set(), COUNT)
        reading = asyncio.create_task(read_gaps(world.store, world.lane, world.state))
        await asyncio.sleep(0)
        world.lane.reset(world.state._replace(created="another"))
        with pytest.raises(Lost):
            await reading
        assert [] == world.ready()

    run(work())
