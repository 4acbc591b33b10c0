"""Which signals end work in order, with the exit code that shells know (F11)."""

import asyncio
import os
import signal

import pytest
import typer

from evenlane.engine.cli.signals import until_signal


class Work:
    """It never ends by itself; told to end, it takes until `free`."""

    def __init__(self) -> None:
        self.ending, self.free, self.ended_in_order = asyncio.Event(), asyncio.Event(), False

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ending.set()
            await self.free.wait()
            self.ended_in_order = True


async def exit_code(first: int, *more: int) -> int:
    work = Work()
    task = asyncio.create_task(until_signal(work.run(), signal.SIGTERM, signal.SIGHUP))
    await asyncio.sleep(0)
    os.kill(os.getpid(), first)
    await asyncio.wait_for(work.ending.wait(), 5)
    for number in more:
        os.kill(os.getpid(), number)
    await asyncio.sleep(0.01)  # (the loop hears of signals by a pipe)
    work.free.set()
    with pytest.raises(typer.Exit) as info:
        await asyncio.wait_for(task, 5)
    assert work.ended_in_order
    return info.value.exit_code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
async def test_the_exit_code_is_128_and_the_signal(number, code):
    assert code == await exit_code(number)


async def test_a_second_signal_does_not_break_off_the_end():
    assert 143 == await exit_code(signal.SIGTERM, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture
def nohup():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.usefixtures("nohup")
async def test_a_signal_that_is_ignored_stays_ignored():
    work = Work()
    work.free.set()
    task = asyncio.create_task(until_signal(work.run(), signal.SIGTERM, signal.SIGHUP))
    await asyncio.sleep(0)
    assert signal.SIG_IGN is signal.getsignal(signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(typer.Exit) as info:
        await asyncio.wait_for(task, 5)
    assert 143 == info.value.exit_code


async def test_what_ends_by_itself_gives_its_result_and_the_signals_back():
    async def work() -> int:
        return 7

    before = signal.getsignal(signal.SIGTERM)
    assert 7 == await until_signal(work(), signal.SIGTERM)
    assert before == signal.getsignal(signal.SIGTERM)


async def test_a_cancellation_of_another_kind_goes_on():
    work = Work()
    work.free.set()
    task = asyncio.create_task(until_signal(work.run(), signal.SIGTERM))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
