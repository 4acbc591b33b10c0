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


async def test_both_serve_inside_and_are_gone_after(tmp_path):
    async with Servers(tmp_path, fast=True) as both:
        connection = await nats.connect(both.nats.url)
        assert 0 == (await connection.jetstream().account_info()).streams
        await connection.close()
        assert f"127.0.0.1:{both.etcd.port}" == both.etcd.endpoint
        assert "true" == (await request(both.etcd.port, "GET", "/health"))["health"]
    assert (False, False) == (both.nats.running, both.etcd.running)


async def test_three_pairs_at_once_get_six_ports(tmp_path):
    pairs = [Servers(tmp_path / str(number), fast=True) for number in range(3)]
    try:
        await asyncio.gather(*(pair.start() for pair in pairs))
        servers = [one for pair in pairs for one in (pair.nats, pair.etcd)]
        assert 6 == len({one.port for one in servers})
        assert all(one.running for one in servers)
    finally:
        await asyncio.gather(*(pair.stop() for pair in pairs))


@pytest.mark.parametrize("kind", ["nats", "etcd"])
async def test_if_one_fails_to_start_the_other_is_stopped(tmp_path, kind):
    with socket.create_server((ports.HOST, 0)) as occupant:
        both = Servers(tmp_path, fast=True, **{f"{kind}_port": occupant.getsockname()[1]})
        with pytest.raises(PortUnavailable, match=f"is taken: choose another --{kind}-port"):
            await both.start()
    assert (False, False) == (both.nats.running, both.etcd.running)


async def test_if_one_fails_after_the_other_serves_both_are_stopped(tmp_path, monkeypatch):
    both = Servers(tmp_path, fast=True)
    nats_serves = asyncio.create_task(both.nats.start())

    async def fail_late():
        await nats_serves
        raise ConfigError("too late")

    monkeypatch.setattr(both.nats, "start", lambda: asyncio.wait_for(nats_serves, 30))
    monkeypatch.setattr(both.etcd, "start", fail_late)
    with pytest.raises(ConfigError, match="too late"):
        await both.start()
    assert -signal.SIGKILL != await both.nats.wait()


async def test_a_taken_data_directory_stops_the_pair(tmp_path):
    one = NatsServer(tmp_path)
    await one.start()
    try:
        both = Servers(tmp_path, fast=True)
        both.nats.lock_within_s = 0.1
        with pytest.raises(DataInUse, match="is in use by another nats-server"):
            await both.start()
        assert not both.etcd.running
    finally:
        await one.stop()


@pytest.mark.parametrize("kind", ["nats", "etcd"])
async def test_the_death_of_one_is_told_in_a_sentence(tmp_path, kind):
    async with Servers(tmp_path, fast=True) as both:
        one = getattr(both, kind)
        os.kill(one.pid, signal.SIGKILL)
        sentence = await asyncio.wait_for(both.wait(), 10)
        assert sentence.startswith(f"{one.title} ended by signal 9 (SIGKILL); it last said: ")
        assert sentence.endswith(f"({one.log_path})")
