"""The loops that keep the lease: a thread's, or the caller's own."""

import asyncio
import threading

import pytest

from evenlane.engine.base.aio.loop_thread import LoopThread, SameLoop
from tests.support.until import poll, until


@pytest.fixture(params=[LoopThread, SameLoop])
async def runner(request):
    made = LoopThread("lease") if request.param is LoopThread else SameLoop()
    yield made
    await made.close()


async def answer(value):
    await asyncio.sleep(0)
    if isinstance(value, Exception):
        raise value
    return value


class TestEither:
    async def test_result_and_error_of_the_work_are_passed_on(self, runner):
        assert 7 == await runner.run(answer(7))
        with pytest.raises(KeyError, match="x"):
            await runner.run(answer(KeyError("x")))

    async def test_callbacks_run_in_order_in_the_nodes_loop_before_run_returns(self, runner):
        """O: the trust of a renewal has arrived when joining returns."""
        seen = []

        async def work():
            for number in range(3):
                runner.notify(lambda each: seen.append((each, threading.get_ident())), number)

        await runner.run(work())
        assert [(number, threading.get_ident()) for number in range(3)] == seen

    async def test_cancelled_caller_cancels_the_work(self, runner):
        begun, ended = threading.Event(), threading.Event()

        async def work():
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        waiting = asyncio.ensure_future(runner.run(work()))
        await until(begun.is_set)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert await asyncio.to_thread(ended.wait, 10)

    async def test_runner_may_be_closed_unused_and_twice(self, runner):
        await runner.close()


async def test_work_continues_while_the_nodes_loop_is_blocked():
    """F1."""
    thread, count = LoopThread("lease"), []

    async def work():
        while True:
            await asyncio.sleep(0.01)
            count.append(threading.get_ident())

    task = asyncio.ensure_future(thread.run(work()))
    await until(lambda: count)
    before = len(count)
    assert poll(lambda: len(count) >= before + 5, 30)  # blocks this loop: the other one goes on
    assert threading.get_ident() not in count
    task.cancel()
    await thread.close()


async def test_close_cancels_running_tasks():
    thread, ended = LoopThread("lease"), threading.Event()

    async def leave_behind():
        async def work():
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        return task

    await thread.run(leave_behind())
    await thread.close()
    assert ended.is_set()
    assert "lease" not in [each.name for each in threading.enumerate()]
