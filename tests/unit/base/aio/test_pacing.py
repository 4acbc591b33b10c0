"""Pacing bounds the turns at the same time, but a slow turn doesn't delay others for long (Z6)."""

import asyncio

from evenlane.engine.base.aio.pacing import Pacing
from tests.support.until import until


class Work:
    """Turns that last until their event in `ends` is set."""

    def __init__(self, few, max_turn_s):
        self.pacing, self.begun, self.ends = Pacing(few, max_turn_s), [], {}

    async def run(self, name):
        self.ends[name] = asyncio.Event()
        async with self.pacing.turn():
            self.begun.append(name)
            await self.ends[name].wait()

    def start(self, *names):
        return [asyncio.create_task(self.run(name)) for name in names]


async def test_next_turn_begins_when_one_ends():
    work = Work(2, max_turn_s=60)
    tasks = work.start("a", "b", "c")
    await until(lambda: len(work.begun) == 2)
    work.ends["b"].set()
    await until(lambda: work.begun == ["a", "b", "c"])
    for end in work.ends.values():
        end.set()
    await asyncio.gather(*tasks)


async def test_next_turn_begins_next_to_a_slow_one():
    """Z1: a stream without a leader must not keep other partitions from being served."""
    work = Work(1, max_turn_s=0.01)
    tasks = work.start("slow", "b", "c")
    await until(lambda: work.begun == ["slow", "b", "c"])
    for end in work.ends.values():
        end.set()
    await asyncio.gather(*tasks)


async def test_late_or_cancelled_turn_counts_once():
    work = Work(1, max_turn_s=0.01)
    slow, cancelled = work.start("slow", "cancelled")
    await until(lambda: work.begun == ["slow", "cancelled"])
    cancelled.cancel()
    work.ends["slow"].set()
    await asyncio.gather(slow, cancelled, return_exceptions=True)
    work.pacing = Pacing(1, max_turn_s=60)
    one, two = work.start("one", "two")
    await until(lambda: work.begun[2:] == ["one"])
    one.cancel()
    await until(lambda: work.begun[2:] == ["one", "two"])
    work.ends["two"].set()
    await two


async def test_turns_begin_at_a_distance():
    """Z6: many partitions that are opened at once leave time for those that don't move."""
    pacing, begun = Pacing(10, max_turn_s=60), []
    start = asyncio.get_running_loop().time()

    async def run():
        async with pacing.turn(0.02):
            begun.append(asyncio.get_running_loop().time())

    await asyncio.gather(*(run() for _ in range(5)))
    assert 5 == len(begun)
    # (a turn that begins late doesn't delay the next one, so each is compared with the first)
    assert all(at - start >= 0.02 * number - 0.001 for number, at in enumerate(begun))
