"""`evenlane run` without servers."""

import asyncio
import os
import signal

import pytest

from evenlane.engine.cli.main import run
from evenlane.engine.runtime.serve import on_signals, serve


class SlowToEnter:
    """An engine that waits for etcd."""

    def __init__(self) -> None:
        self.entering = asyncio.Event()
        self.calls: list[str] = []

    async def __aenter__(self):
        self.entering.set()
        await asyncio.Event().wait()

    async def __aexit__(self, *_):
        self.calls.append("exit")

    def stop(self):
        self.calls.append("stop")

    async def run(self):
        self.calls.append("run")
        return True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_the_wait_for_etcd(number):
    engine = SlowToEnter()
    serving = asyncio.create_task(serve(engine))
    await engine.entering.wait()
    os.kill(os.getpid(), number)
    assert await asyncio.wait_for(serving, 10)
    assert ["stop"] == engine.calls


class Quick(SlowToEnter):
    async def __aenter__(self):
        self.calls.append("enter")

    async def run(self):
        self.calls.append("run")
        return False


async def test_node_joins_runs_and_leaves():
    engine = Quick()
    assert not await serve(engine, lambda: engine.calls.append("joined"))
    assert ["enter", "joined", "run", "exit"] == engine.calls


async def test_error_on_joining_is_raised():
    class Wrong(Quick):
        async def __aenter__(self):
            raise KeyError("why")

    engine = Wrong()
    with pytest.raises(KeyError, match="why"):
        await serve(engine, lambda: engine.calls.append("joined"))
    assert [] == engine.calls


def test_invalid_start_timeout_is_refused(capsys):
    assert 2 == run(["run", "--handler", "a:b", "--start-timeout", "soon"])
    assert "start_timeout (flag --start-timeout): 'soon' is not a duration" in capsys.readouterr().err


async def test_second_sigterm_does_not_interrupt_the_drain():
    stops, loop, done = [], asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, done.set)
    on_signals(lambda: stops.append("stop"))
    try:
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGUSR1):
            os.kill(os.getpid(), number)
            await asyncio.sleep(0)
        await asyncio.wait_for(done.wait(), 10)
        assert ["stop"] == stops
    finally:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            loop.remove_signal_handler(number)
