"""Readiness: probes of both servers, at a limited rate."""

import asyncio

from evenlane.engine.core.ports import Lost
from evenlane.engine.http.readiness import Probe, Readiness
from evenlane.ring.coordination.ports import Unavailable
from tests.support.virtual_time import in_virtual_time


class Server:
    def __init__(self):
        self.fails = None
        self.asked = 0

    async def __call__(self):
        self.asked += 1
        if self.fails is not None:
            raise self.fails


@in_virtual_time
async def test_failing_servers_are_named_and_asked_once_per_second():
    nats, etcd = Server(), Server()
    probe = Probe(nats, etcd)
    assert "" == await probe.find_missing()
    nats.fails, etcd.fails = Lost("no connection"), Unavailable("etcd at x does not answer")
    await asyncio.sleep(1)
    missing = await probe.find_missing()
    assert "NATS does not work properly: no connection; etcd does not work properly: etcd at x" in missing
    nats.fails = etcd.fails = None
    assert missing == await probe.find_missing()
    await asyncio.sleep(1)
    assert "" == await probe.find_missing()


async def test_silent_server_is_named_after_the_timeout():

    async def silent():
        await asyncio.Event().wait()

    assert "etcd did not answer within 0.01 s" == await Probe(Server(), silent, within_s=0.01).find_missing()


async def test_concurrent_callers_share_one_probe():
    nats = Server()
    probe = Probe(nats, Server())
    assert [""] * 50 == await asyncio.gather(*(probe.find_missing() for _ in range(50)))
    assert 1 == nats.asked


def test_readiness_document():
    assert {"ready": True, "node": "n", "partitions": 2, "generation": 5} == Readiness("n", 2, 5).document()
    assert "it drains" == Readiness("n", 2, 5, "it drains").document()["error"]
