"""Tests of F5: nats-server can't write, since its disk is full."""

import asyncio
import os
import subprocess
from collections import Counter
from contextlib import contextmanager, suppress

import aiohttp
import pytest

from evenlane.engine.admin.why.client import why
from evenlane.engine.errors import NotAcknowledged
from evenlane.engine.producer.producer import Producer
from tests.ledger import settle_logs
from tests.ledger.handlers import forgive
from tests.ledger.puts import one
from tests.support.store.harness import limit_files
from tests.support.until import until

pytestmark = pytest.mark.real

WITHIN_S, SLOW_S = 5.0, 10.0  # SLOW_S is for a busy machine
COUNT = 60


class Limit:
    """A limit by which no file of the server may grow, which any user can set. A new process doesn't have it."""

    reason = "the server can't write: a file has reached the size that its system allows"
    spread_s = 0.0

    def __init__(self, world) -> None:
        self._world = world

    def fill(self) -> None:
        limit_files(self._world.servers.nats, 0)

    def empty(self) -> None:
        limit_files(self._world.servers.nats)


class Disk:
    """A small disk, which only root may mount."""

    reason = "the server can't write: no space left on its disk"
    spread_s = 1.5  # many records of the settle log: the first ones may fit into the last page of its file

    def __init__(self, world) -> None:
        self._store = world.folder / "servers" / "nats"

    def fill(self) -> None:
        with suppress(OSError), (self._store / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(b"0" * 4096)

    def empty(self) -> None:
        (self._store / "filler").unlink()


@contextmanager
def mounted(folder):
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, check=False).returncode:
        pytest.skip("this user may not mount a disk")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
async def disk(world, request):
    if request.param is Limit:
        yield Limit(world)
        return
    await world.servers.nats.stop()
    with mounted(world.folder / "servers" / "nats"):
        await world.servers.nats.start()
        yield Disk(world)
        for node in world.nodes:
            if node.running:
                await node.kill()
        await world.servers.nats.stop()


async def readiness(world) -> tuple[int, str]:
    async with aiohttp.ClientSession() as client, client.get(f"{await world.address()}/readyz") as response:
        return response.status, await response.text()


async def refusal(world) -> str:
    """The error of a put with a timeout of 3 s."""
    async with Producer(settings=world.settings, timeout=3) as producer:
        with pytest.raises(NotAcknowledged) as error:
            await producer.put("acme", b"x" * 5_000, id="refused")
    return str(error.value)


@pytest.mark.parametrize("disk", [Limit, pytest.param(Disk, marks=pytest.mark.full)], indirect=True)
async def test_full_disk_is_reported_and_loses_nothing(world, disk):
    """F5, L, D: within 5 s, `/readyz`, `why` and a put give the reason, and the log has one line for each stream. With
    room and a restart of the server all goes on by itself: acknowledged messages are handled, handled ones are settled.
    """
    node = await world.node(http_port=0)
    await world.topics("acme")
    producer = await world.producer()
    last_s = disk.spread_s
    running = [one("acme", f"{n}", order=f"held {disk.spread_s * n / COUNT:g}") for n in range(COUNT)]
    await world.put(producer, running)
    await until(lambda: len(world.ids("begin")) == COUNT, 30, "all to be in handlers")
    disk.fill()
    forgive(node.ledger)
    putting = asyncio.create_task(refusal(world))

    async def not_ready() -> str:
        status, text = await readiness(world)
        return text if status == 503 and disk.reason in text else ""

    text = await until(not_ready, last_s + WITHIN_S + SLOW_S, "/readyz to give the reason")
    assert "it can't settle: " in text
    assert "nats-server must be restarted" in text
    assert f"({disk.reason})" in await putting

    async def noted() -> bool:
        document = await why(world.settings, "acme")
        return any(f"node node-a can't settle: {disk.reason}" in note for note in document["notes"])

    await until(noted, WITHIN_S + SLOW_S, "`why` to give the reason")
    disk.empty()
    await world.servers.nats.restart()

    async def ready() -> bool:
        return (await readiness(world))[0] == 200

    await until(ready, 30, "the node to be ready")
    await world.put(producer, [one("acme", "later")])
    await world.handled()
    assert {put.id for put in running} | {"acme-later"} == world.acknowledged.keys()
    begun = Counter(own for own in world.ids("begin") if own != "refused")
    assert dict.fromkeys(world.acknowledged, 1) == begun
    unwritable = [line for line in node.log.read_text().splitlines() if "a stream can't be written" in line]
    named = [line.partition("stream=")[2].split()[0] for line in unwritable]
    assert "SETTLED_online" in named
    assert dict.fromkeys(named, 1) == Counter(named)
    assert len(named) == node.logged("a stream can be written again")

    async def settled() -> bool:
        logs = await settle_logs.read(world.settings, 8)
        return all(sequence in logs[stream].settled() for stream, sequence in world.acknowledged.values())

    await until(settled, 30, "all of them to be settled")
