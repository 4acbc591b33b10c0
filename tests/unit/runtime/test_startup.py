"""Waiting for etcd at startup."""

import asyncio
from functools import partial

import pytest

from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.runtime.startup import wait_until_answered
from evenlane.ring.coordination.ports import CoordinationError, Unavailable
from tests.support.virtual_time import in_virtual_time


class Server:
    """Answers only the `answers_at`-th question and later ones."""

    def __init__(self, answers_at: float, error: Exception | None = None) -> None:
        self.asked = 0
        self._answers_at = answers_at
        self._error = error or Unavailable("etcd at a:1 does not answer: connection refused")

    async def probe(self) -> str:
        self.asked += 1
        if self.asked < self._answers_at:
            raise self._error
        return "3.5.1"

    status = probe


quickly = partial(wait_until_answered, pause_s=0.001)


async def test_server_that_answers_is_not_waited_for():
    lines = []
    assert "3.5.1" == await quickly(Server(1).probe, 30, lines.append)
    assert [] == lines


async def test_wait_is_reported_once():
    server, lines = Server(20), []
    await quickly(server.status, 30, lines.append)
    assert 20 == server.asked
    assert ["etcd at a:1 does not answer: connection refused; waiting for it, 30 s more"] == lines


async def test_long_wait_is_reported_again():
    lines = []
    await quickly(Server(4).status, 30, lines.append, again_s=0.0)
    assert 3 == len(lines)


@in_virtual_time
async def test_timeout_raises_one_sentence():
    server, lines = Server(float("inf")), []
    with pytest.raises(Unreachable) as failure:
        await quickly(server.status, 0.05, lines.append)
    assert "etcd at a:1 does not answer: connection refused; waited 0.05 s for it (start_timeout)" == str(failure.value)
    assert server.asked > 1
    assert 1 == len(lines)


async def test_timeout_of_zero_raises_after_one_try():
    server, lines = Server(float("inf")), []
    with pytest.raises(Unreachable) as failure:
        await wait_until_answered(server.status, 0, lines.append)
    assert ("etcd at a:1 does not answer: connection refused", 1, []) == (str(failure.value), server.asked, lines)


async def test_first_try_has_its_own_time():
    """A start_timeout of 0 is no deadline for it."""

    async def probe() -> str:
        answer = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(0.05, answer.set_result, "3.5.1")
        return await answer

    assert "3.5.1" == await wait_until_answered(probe, 0, print)


async def test_refusal_raises_at_once():
    """A wrong password, for example."""
    server, lines = Server(float("inf"), CoordinationError("etcd at a:1 refuses: authentication failed")), []
    with pytest.raises(EvenlaneError) as failure:
        await wait_until_answered(server.status, 30, lines.append)
    assert not isinstance(failure.value, Unreachable)
    assert ("etcd at a:1 refuses: authentication failed", 1, []) == (str(failure.value), server.asked, lines)


async def test_defect_of_the_probe_is_raised():
    for defect in (KeyError("x"), TimeoutError("its own")):
        with pytest.raises(type(defect)):
            await wait_until_answered(Server(9, defect).probe, 30, print)


@in_virtual_time
async def test_hanging_try_ends_at_the_timeout():
    calls = []

    async def probe():
        calls.append(1)
        if len(calls) > 1:
            await asyncio.Event().wait()
        raise Unavailable("silent")

    with pytest.raises(Unreachable, match=r"silent; waited 0\.1 s"):
        await asyncio.wait_for(quickly(probe, 0.1, lambda _: None), 10)
    assert 2 == len(calls)


async def test_cancelled_wait_ends():
    waiting = asyncio.create_task(wait_until_answered(Server(float("inf")).status, 3600, lambda _: None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
