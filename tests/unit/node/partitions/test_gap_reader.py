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
from evenlane.engine.node.partitions.gap_reader import GapReader
from evenlane.engine.store.memory.server import MemoryServer
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.lane_host import Host

LANE = LaneId("lanes", 0)
SUBJECT = lane_subject("online", 0, "acme", 0, "mid")
COUNT = 1_000


class CountingStore(MemoryStore):
    """A store that counts the requests for single messages, and answers each with two at most."""

    requests = 0

    async def next_of(self, lane: LaneId, subject: str, start: int, limit: int) -> Any:
        self.requests += 1
        return await super().next_of(lane, subject, start, min(limit, 2))


class World:
    """A stream of `COUNT` messages, and the lane of an owner that takes it over. `waiting` aren't settled; those in
    `removed` have been deleted since, and the log names none of them. All others are settled, and held for another
    subscription.
    """

    async def open(self, waiting: set[int], removed: set[int], *, shared: bool = True) -> None:
        self.queue = Queue("acme", 0, "mid", 1, 0)
        self.queue.rules = QueueRules(asleep=False)
        self.store = CountingStore(MemoryServer(), "online")
        await self.store.open()
        await self.store.prepare([LANE])
        for _ in range(COUNT):
            await self.store.put(SUBJECT, b"", b"x")
        for sequence in removed:
            await self.store.delete(LANE, sequence)
        self.state = await self.store.state(LANE)
        settled = SettledSet()
        for sequence in {*range(1, COUNT + 1)} - waiting - removed:
            settled.add(sequence)
        self.lane = FedLane(LANE, 2, MemoryBudget(), Host(lambda *_: self.queue))
        self.lane.is_shared = shared
        assert self.lane.recover(LogState(created=self.state.created, high=COUNT, settled=settled), self.state, None)

    async def read(self) -> None:
        await GapReader(self.store).read(self.lane, self.state)

    def ready(self) -> list[int]:
        """The messages in the queue."""
        return [entry[1] for entry in self.queue.ready]


some = st.sets(st.integers(1, COUNT), max_size=15)
stretches = st.builds(
    lambda first, length: {*range(first, min(COUNT, first + length))}, st.integers(1, COUNT), some.map(len)
)


@given(some, some, stretches)
def test_all_that_waits_is_taken_in_and_the_feed_begins_behind(
    waiting: set[int], removed: set[int], stretch: set[int]
) -> None:
    """K10, L: in the stream's order; what is gone counts as settled. What is held may still be removed later on."""
    waiting = (waiting | stretch) - removed

    async def work() -> None:
        world = World()
        await world.open(waiting, removed)
        lane, held = world.lane, {*range(1, COUNT + 1)} - waiting - removed
        before, highest, gaps = lane.position, max(held), len([*lane.settled.gaps()])
        await world.read()
        if lane.position == before:  # there is no gap, or a feed costs less
            passed_over = sum(each > before for each in held) - sum(each > highest for each in removed)
            assert gaps == 0 or passed_over < 20 * gaps
            assert [] == world.ready()
            return
        assert world.ready() == sorted(each for each in waiting if each < highest)
        assert lane.position == highest
        assert all(each in lane.settled for each in removed if each < highest)
        assert {*lane.removal.choose_erasable(COUNT)} == {each for each in held if each > lane.settled.watermark}

    asyncio.run(work())


def test_few_requests_read_a_long_stretch_that_is_gone() -> None:
    """K10: what was deleted singly before costs nothing, however long it is."""

    async def work() -> None:
        world = World()
        await world.open({1, 500}, {*range(2, 500)})
        await world.read()
        assert ([1, 500], COUNT) == (world.ready(), world.lane.position)
        assert world.store.requests <= 2

    asyncio.run(work())


@pytest.mark.parametrize(
    ("waiting", "removed", "shared"),
    [({1}, set(), False), ({*range(1, COUNT, 7)}, set(), True), ({1}, {*range(5, COUNT)}, True)],
    ids=["no other subscription", "many gaps", "little is held"],
)
def test_feed_delivers_what_it_delivers_sooner(waiting: set[int], removed: set[int], shared: bool) -> None:
    """K10: nothing is read singly where that costs more than to pass over settled messages."""

    async def work() -> None:
        world = World()
        await world.open(waiting, removed, shared=shared)
        await world.read()
        assert (0, 0, []) == (world.store.requests, world.lane.position, world.ready())

    asyncio.run(work())


def test_it_is_logged() -> None:
    """X10"""

    async def work() -> None:
        world = World()
        await world.open({1, 7}, set())
        with capture_logs() as logs:
            await world.read()
        [line] = [each for each in logs if each["event"] == "read between settled messages"]
        assert (2, COUNT) == (line["messages"], line["sequences"])

    asyncio.run(work())


@pytest.mark.parametrize("request_number", [1, 2])
def test_stream_that_is_replaced_meanwhile(request_number: int) -> None:
    """L: what was read belongs to another stream."""

    async def work() -> None:
        world = World()
        await world.open({1}, set())

        class Replacing(CountingStore):
            """The stream is replaced while this request is under way."""

            left = request_number

            async def _replace(self, answer: Any) -> Any:
                self.left -= 1
                if not self.left:
                    world.lane.reset(world.state._replace(created="another"))
                return answer

            async def count(self, *arguments: Any) -> Any:
                return await self._replace(await super().count(*arguments))

            async def next_of(self, *arguments: Any) -> Any:
                return await self._replace(await super().next_of(*arguments))

        store = Replacing(world.store.server, "online")
        await store.open()
        with pytest.raises(Lost):
            await GapReader(store).read(world.lane, world.state)
        assert [] == world.ready()

    asyncio.run(work())
