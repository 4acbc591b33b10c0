"""F5: streams that can't be written, on real servers."""

import asyncio
import contextlib
import os
import subprocess

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import Full, Lost, Refused
from evenlane.engine.errors import ConfigError
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.runtime.embedded.ports import free_port
from tests.support.store.feeding import fill, subject
from tests.support.store.harness import LANE, JetStreamHarness
from tests.support.until import until


@pytest.mark.real
@pytest.mark.parametrize(
    ("config", "whose", "all_streams"),
    [
        (
            "accounts { A { users = [{user: a, password: a}], jetstream { max_file: 100KB } } }\nno_auth_user: a",
            "the account's storage quota", True,
        ),
        ("jetstream { max_file_store: 100KB }", "the storage that the server gives JetStream", False),
    ],
    ids=["account", "server"],
)  # fmt: skip
async def test_used_up_quota_is_reported_and_recovers(tmp_path, config, whose, all_streams):
    """F5: puts and `unwritable` report it, and no restart is needed once there is room. Only refusals show that the
    server's own quota is used up.
    """
    server = NatsServer(tmp_path, config=config)
    await server.start()
    try:
        world = await JetStreamHarness(server).open()
        streams = [names.stream(world.env, LANE), names.settled_stream(world.env)]
        assert {} == await world.store.unwritable(streams)
        text = f"the server takes no more: {whose} is used up"
        puts = [world.store.put(subject(world.env), b"", b"x" * 2_000) for _ in range(60)]
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        assert {(Full, text)} == {(type(each), str(each)) for each in outcomes if isinstance(each, Exception)}
        assert dict.fromkeys(streams if all_streams else streams[:1], (text, False)) == await world.store.unwritable(
            streams
        )
        await world.store.purge(LANE, (await world.store.state(LANE)).last)
        assert await fill(world, 1)
        assert {} == await world.store.unwritable(streams)
        await world.close()
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def cluster_of_three(folder):
    """Three servers, each with routes to all."""
    ports = [free_port() for _ in range(3)]
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    made = [
        NatsServer(folder / str(port), config=f"cluster {{ name: C, listen: 127.0.0.1:{port}, routes: [{routes}] }}")
        for port in ports
    ]
    for server in made:
        server.data_dir.mkdir()
    await asyncio.gather(*(server.start() for server in made))
    try:
        yield made
    finally:
        await asyncio.gather(*(server.stop() for server in made if server.is_running))


async def opened(server):
    """None while the servers have no majority."""
    world = JetStreamHarness(server, replicas=3)
    try:
        return await world.open()
    except (ConfigError, Lost, Refused):
        await world.disconnect()


async def unwritable(world, streams):
    with contextlib.suppress(Lost):
        return await world.store.unwritable(streams)


async def have_no_leader(world, streams):
    found = await unwritable(world, streams) or {}
    return dict.fromkeys(streams, "it has no leader") == {
        stream: why.why.partition(",")[0] for stream, why in found.items()
    }


async def is_writable(world, streams):
    return await unwritable(world, streams) == {}


@pytest.mark.real
@pytest.mark.full
async def test_streams_without_leader_are_reported_and_recover(tmp_path):
    """F5: two of three servers are down. One that returns makes a majority again."""
    async with cluster_of_three(tmp_path) as (first, *others):
        world = await until(lambda: opened(first), 120, "a majority that makes streams")
        streams = [names.stream(world.env, LANE), names.settled_stream(world.env)]
        try:
            assert {} == await world.store.unwritable(streams)
            await asyncio.gather(*(server.kill() for server in others))
            # At first the remaining server doesn't answer for a stream; then it reports that there is no leader.
            await until(lambda: have_no_leader(world, streams), what="the store to notice")
            await others[0].start()
            await until(lambda: is_writable(world, streams), what="the streams to be writable")
        finally:
            await world.disconnect()


@contextlib.contextmanager
def read_only(folder):
    """Make the folder read-only, except for open files. Needs root."""
    bound = ["mount", "--bind", str(folder), str(folder)]
    if os.geteuid() or subprocess.run(bound, check=False).returncode:
        pytest.skip("this user can't mount")
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.real
@pytest.mark.full
async def test_read_only_stream_is_reported_and_needs_restart(tmp_path):
    """F5: the server notices with the next file that it needs."""
    server = NatsServer(tmp_path)
    await server.start()
    try:
        world = await JetStreamHarness(server).open()
        streams = [names.stream(world.env, LANE), names.settled_stream(world.env)]
        [folder] = tmp_path.glob(f"nats/jetstream/*/streams/{streams[0]}/msgs")
        failures = {streams[0]: ("the server can't write: its disk is read-only", True)}
        with read_only(folder):
            with pytest.raises(Lost):
                await fill_a_file(world)
            assert failures == await world.store.unwritable(streams)
        assert failures == await world.store.unwritable(streams), "nats-server doesn't check again"
        await world.outage()
        await world.back()
        await until(lambda: is_writable(world, streams), what="the streams to be writable")
        assert await fill(world, 1)
        await world.close()
    finally:
        await server.stop()


async def fill_a_file(world):
    """Put more than fits into one."""
    for _ in range(40):
        await asyncio.gather(*(world.store.put(subject(world.env), b"", b"x" * 500_000) for _ in range(4)))
