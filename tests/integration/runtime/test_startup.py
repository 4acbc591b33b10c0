"""Waiting for real servers at the start."""

import asyncio

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.runtime.embedded import ports
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.runtime.startup import wait_until_answered
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.store import JetStreamStore
from evenlane.ring.coordination.etcd.client import EtcdCoordination
from tests.support.until import until


@pytest.mark.real
async def test_late_etcd_is_reached(tmp_path):
    port = ports.free_port()
    client, notices = EtcdCoordination([f"127.0.0.1:{port}"]), []
    server = EtcdServer(tmp_path, port=port, fast=True)
    waiting = asyncio.create_task(wait_until_answered(client.status, 60, notices.append))
    try:
        await until(lambda: notices)
        await server.start()
        await waiting
        assert notices[0].startswith(f"etcd at 127.0.0.1:{port} does not answer: ")
    finally:
        waiting.cancel()
        await client.close()
        await server.stop()


@pytest.mark.real
async def test_unused_port_is_reported_after_configured_time():
    client = EtcdCoordination([f"127.0.0.1:{ports.free_port()}"])
    async with asyncio.timeout(30):
        with pytest.raises(Unreachable, match=r"does not answer: .*; waited 1 s for it"):
            await wait_until_answered(client.status, 1, lambda _: None)
    await client.close()


@pytest.mark.real
async def test_wrong_nats_login_is_reported_at_once(tmp_path):
    """nats-py itself would try again until the time is over."""
    server = NatsServer(tmp_path, config="authorization { user: a, password: b }")
    await server.start()
    notices = []

    async def probe():
        await JetStreamStore(
            NatsOptions((server.url,), user="a", password="wrong", connect_timeout=20), "online"
        ).open()

    try:
        with pytest.raises(EvenlaneError, match=r"NATS at .* refuses: the credentials are wrong") as failure:
            await wait_until_answered(probe, 30, notices.append)
        assert ([], False) == (notices, isinstance(failure.value, Unreachable))
    finally:
        await server.stop()


@pytest.mark.real
async def test_late_nats_is_reached(tmp_path):
    """The same store is opened repeatedly until it is open."""
    server, notices = NatsServer(tmp_path, port=ports.free_port()), []
    store = JetStreamStore(NatsOptions((f"nats://127.0.0.1:{server.port}",), connect_timeout=0.3), "online")
    waiting = asyncio.create_task(wait_until_answered(store.open, 60, notices.append))
    try:
        await until(lambda: notices)
        await server.start()
        await waiting
        assert store.is_connected
        await store.prepare([LaneId("lanes", 0)])
        assert 0 == (await store.state(LaneId("lanes", 0))).last
        await store.close()
    finally:
        waiting.cancel()
        await server.stop()
