"""Few turns at the same time, but a slow one holds nobody up for long (Z6)."""

import asyncio

from evenlane.engine.base.aio.pacing import Pacing
from tests.support.until import until


class Work:
    """Turns that last until `end` is told of them."""

    def __init__(self, few, patience_s):
        self.pacing, self.begun, self.ends = Pacing(few, patience_s), [], {}

    async def run(self, name):
        self.ends[name] = asyncio.Event()
        async with self.pacing.turn():
            self.begun.append(name)
            await self.ends[name].wait()

    def start(self, *names):
        return [asyncio.create_task(self.run(name)) for name in names]


async def test_the_next_turn_begins_when_one_ends():
    work = Work(2, patience_s=60)
    tasks = work.start("a", "b", "c")
    await until(lambda: len(work.begun) == 2)
    work.ends["b"].set()
    await until(lambda: work.begun == ["a", "b", "c"])
    for end in work.ends.values():
        end.set()
    await asyncio.gather(*tasks)


async def test_beside_a_slow_turn_the_next_one_begins():
    """Z1: a stream without a leader keeps no other partition from being served."""
    work = Work(1, patience_s=0.01)
    tasks = work.start("slow", "b", "c")
    await until(lambda: work.begun == ["slow", "b", "c"])
    for end in work.ends.values():
        end.set()
    await asyncio.gather(*tasks)


async def test_a_turn_counts_once_whether_it_ends_late_or_is_given_up():
    work = Work(1, patience_s=0.01)
    slow, timed_out = work.start("slow", "given up")
    await until(lambda: work.begun == ["slow", "given up"])
    timed_out.cancel()
    work.ends["slow"].set()
    await asyncio.gather(slow, timed_out, return_exceptions=True)
    work.pacing = Pacing(1, patience_s=60)
    one, two = work.start("one", "two")
    await until(lambda: work.begun[2:] == ["one"])
    one.cancel()
    await until(lambda: work.begun[2:] == ["one", "two"])
    work.ends["two"].set()
    await two


async def test_turns_begin_apart():
    """Z6: many that are opened at the same time leave time for what doesn't move."""
    pacing, begun = Pacing(10, patience_s=60), []
    start = asyncio.get_running_loop().time()

    async def run():
        async with pacing.turn(0.02):
            begun.append(asyncio.get_running_loop().time())

    await asyncio.gather(*(run() for _ in range(5)))
    assert 5 == len(begun)
    # (one that begins late doesn't put the next one off, so they are compared with the first)
    assert all(at - start >= 0.02 * number - 0.001 for number, at in enumerate(begun))
