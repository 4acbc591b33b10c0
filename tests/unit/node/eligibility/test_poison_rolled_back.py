"""A stream is rolled back after a death: what takes the sequences of what was in flight pays nothing for it (X11)."""

import time

import pytest

from tests.support.node.two import P, Two, lane_of
from tests.support.node.world import SECOND, topic
from tests.support.until import until


class Dead(Two):
    """Node a dies with the `first` in flight; `next` is put once the stream has lost some of them. All are recorded."""

    async def begin(self, kind, count):
        a = await self.bare("a")
        await a.owned.open(P, 1)
        self.slow = {("a", f"m{n + 1}") for n in range(count)}
        self.kind, self.first = kind, [await self.message(kind) for _ in range(count)]
        await until(lambda: len(a.workers.running) == count)
        return a

    async def message(self, kind):
        return await self.put(due=self.store.now() if kind == "later" else None)

    async def lose(self, left, seconds=2):
        """All but so many messages; the next one is put so much later."""
        self.server.roll_back("online", lane_of(self.kind), left)
        self.server.clock = lambda: time.time_ns() + seconds * SECOND
        self.next = await self.message(self.kind)

    async def ends(self):
        await until(lambda: self.waiting() == 0)
        return {message.id: (message.attempt, message.suspect) for message in self.handled}


@pytest.fixture
async def world():
    async with Dead(acme=topic(max_attempts=1)) as made:
        yield made


kinds = pytest.mark.parametrize("kind", ["lanes", "later"])


@kinds
async def test_another_message_pays_nothing(world, kind):
    """X11, E12: though the settle log is one of this stream, as it never heard of what is lost."""
    await world.crash(await world.begin(kind, 1))
    await world.lose(0)
    b = await world.bare("b")
    await b.owned.open(P, 2)
    assert {world.next: (1, False)} == await world.ends()


@kinds
async def test_those_that_are_left_do(world, kind):
    """X11: they were in flight."""
    await world.crash(await world.begin(kind, 3))
    await world.lose(2)
    b = await world.bare("b")
    await b.owned.open(P, 2)
    left = dict.fromkeys(world.first[:2], (2, True))
    assert {**left, world.next: (1, False)} == await world.ends()


async def test_what_comes_at_once_might_have_been_meant(world):
    """X11: clocks of servers differ; a poison message must not escape for it."""
    await world.crash(await world.begin("lanes", 1))
    await world.lose(0, 0)
    b = await world.bare("b")
    await b.owned.open(P, 2)
    assert {world.next: (2, True)} == await world.ends()


@kinds
async def test_who_is_missing_clears_nobody_else(world, kind):
    """X11, E12: one that was deleted by hand says nothing of those before it."""
    await world.crash(await world.begin(kind, 3))
    await world.store.delete(lane_of(kind), 3)
    b = await world.bare("b")
    await b.owned.open(P, 2)
    assert dict.fromkeys(world.first[:2], (2, True)) == await world.ends()
    await until(lambda: not b.partitions[P].lane.marks.of and not b.partitions[P].later.marks.of)
