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


@pytest.fixture
def signals_restored():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_ends_the_wait_for_etcd(number, signals_restored):
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


async def test_node_joins_runs_and_leaves(signals_restored):
    engine = Quick()
    assert not await serve(engine, lambda: engine.calls.append("joined"))
    assert ["enter", "joined", "run", "exit"] == engine.calls


async def test_error_on_joining_is_raised(signals_restored):
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


async def test_only_further_signals_are_passed_on(signals_restored):
    called, done = [], asyncio.Event()

    def again(number):
        called.append(number)
        done.set()

    on_signals(lambda: called.append("stop"), again)
    for number in (signal.SIGTERM, signal.SIGINT):
        os.kill(os.getpid(), number)
    await asyncio.wait_for(done.wait(), 10)
    await asyncio.sleep(0)
    assert {"stop", signal.SIGINT} == set(called)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ([], "the handler is missing: give it as MODULE:FUNCTION or MODULE:APP, for example shop:app"),
        (
            ["a:b", "--handler", "c:d"],
            "the handler is given twice, as 'a:b' and as --handler 'c:d': leave out one of them",
        ),
    ],
)
def test_exactly_one_handler_is_needed(capsys, given, sentence):
    assert 2 == run(["run", *given])
    assert ("", f"evenlane: {sentence}\n") == capsys.readouterr()


def test_handler_may_be_an_argument(capsys):
    assert 2 == run(["run", "nowhere:app"])
    assert "there is no module 'nowhere'" in capsys.readouterr().err
