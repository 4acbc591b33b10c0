"""nats-server and etcd together."""

import asyncio
import os
import signal
import socket

import nats
import pytest

from evenlane.engine.errors import ConfigError, DataInUse, PortUnavailable
from evenlane.engine.runtime.embedded import ports
from evenlane.engine.runtime.embedded.etcd import request
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.runtime.embedded.pair import Servers

pytestmark = pytest.mark.real


async def test_pair_serves_inside_context_only(tmp_path):
    async with Servers(tmp_path, fast=True) as both:
        connection = await nats.connect(both.nats.url)
        assert 0 == (await connection.jetstream().account_info()).streams
        await connection.close()
        assert f"127.0.0.1:{both.etcd.port}" == both.etcd.endpoint
        assert "true" == (await request(both.etcd.port, "GET", "/health"))["health"]
    assert (False, False) == (both.nats.is_running, both.etcd.is_running)


async def test_concurrent_pairs_get_distinct_ports(tmp_path):
    pairs = [Servers(tmp_path / str(number), fast=True) for number in range(2)]
    try:
        await asyncio.gather(*(pair.start() for pair in pairs))
        servers = [one for pair in pairs for one in (pair.nats, pair.etcd)]
        assert 4 == len({one.port for one in servers})
        assert all(one.is_running for one in servers)
    finally:
        await asyncio.gather(*(pair.stop() for pair in pairs))


@pytest.mark.parametrize("kind", ["nats", "etcd"])
async def test_failed_start_of_one_stops_other(tmp_path, kind):
    with socket.create_server((ports.HOST, 0)) as occupant:
        both = Servers(tmp_path, fast=True, **{f"{kind}_port": occupant.getsockname()[1]})
        with pytest.raises(PortUnavailable, match=f"is in use: choose another --{kind}-port"):
            await both.start()
    assert (False, False) == (both.nats.is_running, both.etcd.is_running)


async def test_late_failure_of_one_stops_other(tmp_path, monkeypatch):
    both = Servers(tmp_path, fast=True)
    nats_serves = asyncio.create_task(both.nats.start())

    async def fail_late():
        await nats_serves
        raise ConfigError("too late")

    monkeypatch.setattr(both.nats, "start", lambda: asyncio.wait_for(nats_serves, 60))
    monkeypatch.setattr(both.etcd, "start", fail_late)
    with pytest.raises(ConfigError, match="too late"):
        await both.start()
    assert -signal.SIGKILL != await both.nats.wait()


async def test_data_directory_in_use_stops_pair(tmp_path):
    one = NatsServer(tmp_path)
    await one.start()
    try:
        both = Servers(tmp_path, fast=True)
        both.nats.lock_within_s = 0.1
        with pytest.raises(DataInUse, match="is in use by another nats-server"):
            await both.start()
        assert not both.etcd.is_running
    finally:
        await one.stop()


@pytest.mark.parametrize("kind", ["nats", "etcd"])
async def test_end_of_one_is_reported_in_sentence(tmp_path, kind):
    async with Servers(tmp_path, fast=True) as both:
        one = getattr(both, kind)
        os.kill(one.pid, signal.SIGKILL)
        sentence = await asyncio.wait_for(both.wait(), 60)
        assert sentence.startswith(f"{one.title} ended by signal 9 (SIGKILL); its last output was: ")
        assert sentence.endswith(f"({one.log_path})")
