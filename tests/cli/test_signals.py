"""F11: signals end work in order, with the exit code that shells expect."""

import asyncio
import os
import signal

import pytest
import typer

from evenlane.engine.cli.signals import run_until_signal


class Work:
    """Work without an end. Once cancelled, it takes until `free` is set."""

    def __init__(self) -> None:
        self.ending, self.free, self.ended_in_order = asyncio.Event(), asyncio.Event(), False

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ending.set()
            await self.free.wait()
            self.ended_in_order = True


async def received(*numbers: int) -> None:
    """Wait until the loop has run the handlers of these signals, which it learns of through a pipe, in order."""
    if numbers:
        last, loop = asyncio.Event(), asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, last.set)
        os.kill(os.getpid(), signal.SIGUSR1)
        await asyncio.wait_for(last.wait(), 30)
        loop.remove_signal_handler(signal.SIGUSR1)


@pytest.fixture(autouse=True)
def inherited():
    """The shell that started the tests may ignore a signal, as `nohup` does."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


async def exit_code(first: int, *more: int) -> int:
    work = Work()
    task = asyncio.create_task(run_until_signal(work.run(), signal.SIGTERM, signal.SIGHUP))
    await asyncio.sleep(0)
    try:
        os.kill(os.getpid(), first)
        await asyncio.wait_for(work.ending.wait(), 30)
        for number in more:
            os.kill(os.getpid(), number)
        await received(*more)
    finally:
        work.free.set()
    with pytest.raises(typer.Exit) as info:
        await asyncio.wait_for(task, 30)
    assert work.ended_in_order
    return info.value.exit_code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_exit_code_is_128_plus_the_signal(number, code):
    assert code == await exit_code(number)


async def test_second_signal_does_not_interrupt_the_end():
    assert 143 == await exit_code(signal.SIGTERM, signal.SIGTERM, signal.SIGHUP)


async def test_ignored_signal_stays_ignored():
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    work = Work()
    work.free.set()
    task = asyncio.create_task(run_until_signal(work.run(), signal.SIGTERM, signal.SIGHUP))
    await asyncio.sleep(0)
    assert signal.SIG_IGN is signal.getsignal(signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(typer.Exit) as info:
        await asyncio.wait_for(task, 30)
    assert 143 == info.value.exit_code


async def test_work_that_ends_returns_its_result_and_restores_signals():
    async def work() -> int:
        return 7

    assert 7 == await run_until_signal(work(), signal.SIGTERM)
    assert signal.SIG_DFL == signal.getsignal(signal.SIGTERM)


async def test_other_cancellation_propagates():
    work = Work()
    work.free.set()
    task = asyncio.create_task(run_until_signal(work.run(), signal.SIGTERM))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
