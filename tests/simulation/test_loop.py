"""Tests of the simulated event loop: time, pauses, death, order."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from tests.simulation.loop import NODE, SECOND, Actor, SimLoop, Stuck, bury


def _loop(failures: list[str] | None = None) -> SimLoop:
    return SimLoop(Random(1), lambda what, _error: failures.append(what) if failures is not None else None)


async def _tick(log: list[tuple[str, float]], every: float) -> None:
    loop, node = asyncio.get_running_loop(), NODE.get()
    while True:
        await asyncio.sleep(every)
        log.append((str(node), round(loop.time() - 1_000, 6)))


def test_time_jumps_to_the_next_timer():
    """An hour passes at once, and timers fire in their order."""
    loop, rung = _loop(), []

    async def main() -> None:
        for delay in (3_000, 10, 500.5):
            loop.call_later(delay, lambda delay=delay: rung.append((delay, loop.now)))
        await asyncio.sleep(3_600)

    loop.run(main())
    assert [10, 500.5, 3_000] == [delay for delay, _ in rung]
    assert [1_010 * SECOND, 1_500.5 * SECOND, 4_000 * SECOND] == [at for _, at in rung]


def test_paused_node_continues_late():
    """SIGSTOP holds back a node's timers while others go on; after SIGCONT they fire at once."""
    loop, log = _loop(), []
    one, two = Actor("one"), Actor("two")

    async def main() -> None:
        tasks = [loop.create_task(_tick(log, 1.0), context=node.context) for node in (one, two)]
        loop.call_later(1.5, loop.pause, one)
        loop.call_later(4.25, loop.resume, one)
        await asyncio.sleep(5.5)
        for task in tasks:
            task.cancel()

    loop.run(main())
    assert [1.0, 4.25, 5.25] == [at for name, at in log if name == "one"]
    assert [1.0, 2.0, 3.0, 4.0, 5.0] == [at for name, at in log if name == "two"]


def test_killed_node_never_runs_again():
    """SIGKILL: not even a `finally` of the node runs until it is buried at the end."""
    loop, log = _loop(), []
    node = Actor("one")
    graves = []

    async def live() -> None:
        try:
            await _tick(log, 1.0)
        finally:
            log.append(("one", -1.0))

    async def main() -> None:
        loop.create_task(live(), context=node.context)
        loop.call_later(2.5, lambda: graves.extend(loop.kill(node)))
        await asyncio.sleep(9)
        assert [1.0, 2.0] == [at for _, at in log]

    loop.run(main())
    assert 1 == len(graves)
    loop.close()
    bury(graves)
    assert -1.0 == log[-1][1]


def test_order_is_drawn_between_nodes_and_kept_within():
    """Two seeds make two orders of nodes; within a node, callbacks keep their order."""

    def order(seed: int) -> list[tuple[str, int]]:
        loop, log = SimLoop(Random(seed), lambda *_: None), []

        async def main() -> None:
            for name in ("one", "two"):
                node = Actor(name)
                for number in range(10):
                    loop.call_soon(lambda name=name, number=number: log.append((name, number)), context=node.context)
            await asyncio.sleep(1)

        loop.run(main())
        return log

    assert order(1) == order(1)
    assert order(1) != order(2)
    for name in ("one", "two"):
        assert list(range(10)) == [number for each, number in order(1) if each == name]


def test_stuck_world_is_reported():
    """A world without any timer is an error, and so is one that never reaches its next timer."""
    loop = _loop()

    async def wait_for_nothing() -> None:
        await loop.create_future()

    with pytest.raises(Stuck, match="nothing waits"):
        loop.run(wait_for_nothing())
    bury(list(asyncio.all_tasks(loop)))

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    loop = _loop()
    with pytest.raises(Stuck, match="at one instant"):
        loop.run(spin())
    bury(list(asyncio.all_tasks(loop)))


def test_failing_callback_is_reported():
    """A failing callback ends no other, as in the real loop, and is reported."""
    failures: list[str] = []
    loop = _loop(failures)

    async def main() -> None:
        loop.call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    loop.run(main())
    assert 1 == len(failures)
