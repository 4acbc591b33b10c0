"""Whether both servers answer, asked seldom enough."""

import asyncio

import pytest

from evenlane.engine.core.ports import Lost
from evenlane.engine.http import readiness
from evenlane.engine.http.readiness import Probe, Readiness
from evenlane.ring.coordination.ports import Unavailable


class Server:
    def __init__(self):
        self.fails = None
        self.asked = 0

    async def __call__(self):
        self.asked += 1
        if self.fails is not None:
            raise self.fails


@pytest.fixture
def clock(monkeypatch):
    at = [10**9]
    monkeypatch.setattr(readiness, "now_ns", lambda: at[0])
    return at


async def test_each_that_does_not_answer_is_named(clock):
    nats, etcd = Server(), Server()
    probe = Probe(nats, etcd)
    assert "" == await probe.missing()
    nats.fails, etcd.fails = Lost("no connection"), Unavailable("etcd at x does not answer")
    clock[0] += 10**9
    reported = await probe.missing()
    assert "NATS does not answer as it should: no connection; etcd does not answer as it should: etcd at x" in reported
    nats.fails = etcd.fails = None
    assert reported == await probe.missing()
    clock[0] += 10**9
    assert "" == await probe.missing()


async def test_one_that_is_silent_is_not_waited_for(clock):

    async def silent():
        await asyncio.Event().wait()

    assert "etcd gives no answer within 0.01 s" == await Probe(Server(), silent, within_s=0.01).missing()


async def test_many_who_ask_are_one_question(clock):
    nats = Server()
    probe = Probe(nats, Server())
    assert [""] * 50 == await asyncio.gather(*(probe.missing() for _ in range(50)))
    assert 1 == nats.asked


def test_what_is_told():
    assert {"ready": True, "node": "n", "partitions": 2, "generation": 5} == Readiness("n", 2, 5).document()
    assert "it drains" == Readiness("n", 2, 5, "it drains").document()["error"]
