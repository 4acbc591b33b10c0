"""A stream is rolled back after a death: messages that get the sequences of those in flight pay nothing (X11)."""

import time

import pytest

from tests.support.node.two import P, Two, lane_of
from tests.support.node.world import SECOND, topic
from tests.support.until import until


class RolledBack(Two):
    """Node a dies with the messages `first` in flight; `next` is put once the stream has lost some of them. All
    messages are recorded.
    """

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
        """Lose all but `left` messages; the next one is put `seconds` later."""
        self.server.roll_back("online", lane_of(self.kind), left)
        self.server.clock = lambda: time.time_ns() + seconds * SECOND
        self.next = await self.message(self.kind)

    async def ends(self):
        """The attempt of each message, and whether it was a suspect, by id."""
        await self.all_gone()
        return {message.id: (message.attempt, message.is_suspect) for message in self.handled}


@pytest.fixture
async def world():
    async with RolledBack(acme=topic(max_attempts=1)) as made:
        yield made


kinds = pytest.mark.parametrize("kind", ["lanes", "later"])


@kinds
async def test_new_message_pays_nothing_for_the_lost_one(world, kind):
    """X11, E12: though the settle log matches this stream, as the lost message isn't in it."""
    await world.crash(await world.begin(kind, 1))
    await world.lose(0)
    b = await world.bare("b")
    await b.owned.open(P, 2)
    assert {world.next: (1, False)} == await world.ends()


@kinds
async def test_remaining_messages_pay_for_the_death(world, kind):
    """X11: they were in flight."""
    await world.crash(await world.begin(kind, 3))
    await world.lose(2)
    b = await world.bare("b")
    await b.owned.open(P, 2)
    left = dict.fromkeys(world.first[:2], (2, True))
    assert {**left, world.next: (1, False)} == await world.ends()


async def test_message_put_right_after_the_rollback_pays(world):
    """X11: clocks of servers differ, and a poison message must not escape because of it."""
    await world.crash(await world.begin("lanes", 1))
    await world.lose(0, 0)
    b = await world.bare("b")
    await b.owned.open(P, 2)
    assert {world.next: (2, True)} == await world.ends()


@kinds
async def test_deleted_message_clears_no_other(world, kind):
    """X11, E12: its neighbours before it are suspects."""
    await world.crash(await world.begin(kind, 3))
    await world.store.delete(lane_of(kind), 3)
    b = await world.bare("b")
    await b.owned.open(P, 2)
    assert dict.fromkeys(world.first[:2], (2, True)) == await world.ends()
    await until(lambda: not any(lane.marks.of for lane in b.partitions[P].lanes))
