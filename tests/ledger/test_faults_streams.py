"""Streams that aren't what they were: deleted, rolled back, or with messages in them that belong nowhere."""

import asyncio
import shutil

import nats
import pytest

from tests.ledger import settle_logs
from tests.ledger.puts import one, some
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]


async def test_a_stream_deleted_under_a_running_node(world):
    """L: the next put makes it anew, and the node handles what then has the same sequences."""
    node = await world.node()
    await world.topics("acme", "bolt")
    producer = await world.producer()
    await world.put(producer, some("acme", "old", 50))
    await world.handled()
    stream, last = world.acknowledged["acme-old-49"]
    assert 50 == last
    await world.api(f"STREAM.DELETE.{stream}")
    await world.put(producer, [*some("acme", "new", 50), *some("bolt", "m", 50)])
    assert (stream, 50) in {world.acknowledged[f"acme-new-{number}"] for number in range(50)}
    await world.handled()
    await world.put(producer, some("acme", "more", 50))
    await world.handled()
    assert 0 == await node.stop()
    logs = await settle_logs.read(world.settings, 8)
    assert set(range(1, 101)) == logs[stream].settled()


async def test_a_stream_deleted_while_its_messages_wait_at_hand(world):
    """L, V: what was deleted is gone, but the node goes on, with this project and with others."""
    node = await world.node(concurrency=1)
    await world.topics("acme", "bolt")
    producer = await world.producer()
    await world.put(producer, some("acme", "old", 200, order="sleep 0.05"))
    await until(lambda: len(world.ids()) > 8, 10, "some to be handled")
    stream, _ = world.acknowledged["acme-old-0"]
    await world.api(f"STREAM.DELETE.{stream}")
    new = [*some("acme", "new", 50), *some("bolt", "m", 50)]
    await world.put(producer, new)
    await world.handled(*(put.id for put in new))
    assert 0 == await node.stop()


class Backup:
    """A copy of what nats-server has on disk, made and brought back while it doesn't run."""

    def __init__(self, world, *, whole: bool) -> None:
        self._server, self._whole = world.servers.nats, whole
        self._store = world.folder / "servers" / "nats"
        self._copy = world.folder / "backup"

    async def make(self) -> None:
        await self._server.kill()
        shutil.copytree(self._store, self._copy)
        await self._server.start()

    async def bring_back(self) -> None:
        """With `whole` all of it, otherwise the lanes but not the settle log."""
        await self._server.kill()
        streams = "jetstream/$G/streams"
        for old in (self._copy / streams).iterdir():
            if self._whole or not old.name.startswith("SETTLED"):
                shutil.rmtree(self._store / streams / old.name)
                shutil.copytree(old, self._store / streams / old.name)
        await self._server.start()


@pytest.mark.parametrize("whole", [True, False], ids=["all streams", "not the settle log"])
@pytest.mark.parametrize("running", [True, False], ids=["node runs", "node restarts"])
async def test_a_store_that_was_rolled_back_under_the_node(world, running, whole):
    """L: what is acknowledged after that has sequences that were settled before, and is handled all the same."""
    node = await world.node()
    await world.topics("acme", "bolt")
    producer = await world.producer()
    await world.put(producer, [*some("acme", "a", 40), *some("bolt", "a", 40, order="first fail 1")])
    await world.handled()
    backup = Backup(world, whole=whole)
    await backup.make()
    await world.put(producer, [*some("acme", "b", 40), *some("bolt", "b", 40, order="first fail 1")])
    await world.handled()
    before = dict(world.acknowledged)
    await until(lambda: _settled(world, before), 10, "all of them to be settled")
    if not running:
        await node.kill()
    await backup.bring_back()
    await world.put(producer, [*some("acme", "c", 60), *some("bolt", "c", 60, order="first fail 1")])
    if not running:
        await node.start()
    assert {before[f"acme-b-{n}"] for n in range(40)} <= {world.acknowledged[f"acme-c-{n}"] for n in range(60)}
    await world.handled()
    assert [] == world.refused
    await world.put(producer, [*some("acme", "d", 40), *some("bolt", "d", 40, order="first fail 1")])
    await world.handled()
    assert 0 == await node.stop()
    logs = await settle_logs.read(world.settings, 8)
    for stream, sequence in world.acknowledged.values():
        assert sequence in logs[stream].settled()


async def _settled(world, where) -> bool:
    logs = await settle_logs.read(world.settings, 8)
    return all(sequence in logs[stream].settled() for stream, sequence in where.values())


UNROUTABLE = {
    "lanes.online.{p}.acme.0.urgent": "there is no priority",
    "lanes.online.{p}.acme.abc.mid": "no group number",
    "lanes.online.{p}.acme.007.mid": "no group number",
    "lanes.online.{p}.acme.-1.mid": "no group number",
    "lanes.online.{p}._acme.0.mid": "project",
    "lanes.online.{p}.açme.0.mid": "project",
    "lanes.online.{p}.$JS.0.mid": "project",
    "later.online.{p}.acme.0.urgent.1": "there is no priority",
    "later.online.{p}.acme.0.mid.soon": "hour",
    "later.online.{p}.acme.0.mid.-5": "hour",
}


@pytest.mark.parametrize("at_start", [False, True], ids=["node runs", "node restarts"])
async def test_messages_that_belong_to_no_queue(world, at_start):
    """L: kept among the dead letters with their subject and a reason; what comes behind them is handled."""
    node = await world.node()
    await world.topics("acme")
    producer = await world.producer()
    await world.put(producer, [one("acme", "first")])
    await world.handled()
    partition = world.acknowledged["acme-first"][0].rpartition("_")[2]
    if at_start:
        assert 0 == await node.stop()
    subjects = {
        subject.format(p=partition): reason
        for subject, reason in UNROUTABLE.items()
        if at_start or subject.startswith("lanes")  # a running node looks for new hours once a minute
    }
    client = await nats.connect(world.servers.nats.url)
    for subject in subjects:
        await client.jetstream().publish(subject, subject.encode(), headers={"Own": "kept"})
    await client.close()
    if at_start:
        await node.start()
    await world.put(producer, some("acme", "behind", 50, order="first fail 1"))
    await world.handled()
    dead = await world.dead_letters()

    async def all_there() -> bool:
        return len(await dead.read()) >= len(subjects)

    await until(all_there, 20, "the strays to be dead letters")
    dead_letters = {dead_letter.subject: dead_letter for dead_letter in await dead.read()}
    assert subjects.keys() == dead_letters.keys()
    for subject, dead_letter in dead_letters.items():
        assert ("_stray", subject.encode(), "kept") == (
            dead_letter.project,
            dead_letter.body,
            dead_letter.headers["Own"],
        )
        assert subjects[subject] in dead_letter.reason
    await asyncio.sleep(0.3)
    assert 0 == await node.stop()
