"""Tests of streams that were deleted or rolled back, or that hold unroutable messages."""

import shutil

import nats
import pytest

from tests.ledger import settle_logs
from tests.ledger.puts import one, some
from tests.support.until import until

pytestmark = pytest.mark.real


async def test_node_survives_deleted_streams(world):
    """L, V: the next put creates the stream again, and the node handles the messages that get the same sequences.
    Messages that waited are gone with their stream, but this project and others go on.
    """
    node = await world.node(concurrency=1)
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

    async def settled() -> bool:
        return (await settle_logs.read(world.settings, 8))[stream].settled() == set(range(1, 101))

    await until(settled, what="all to be settled")
    waiting = some("acme", "waiting", 200, order="sleep 0.05")
    await world.put(producer, waiting)
    await until(lambda: sum("waiting" in own for own in world.ids()) > 8, what="some to be handled")
    await world.api(f"STREAM.DELETE.{stream}")
    last_ones = [*some("acme", "last", 50), *some("bolt", "last", 50)]
    await world.put(producer, last_ones)
    await world.handled(*(put.id for put in last_ones))
    assert 0 == await node.stop()


class Backup:
    """A copy of nats-server's disk, made and restored while the server doesn't run."""

    def __init__(self, world, name: str, *, whole: bool) -> None:
        self._server, self._whole = world.servers.nats, whole
        self._store = world.folder / "servers" / "nats"
        self._copy = world.folder / f"backup-{name}"

    async def make(self) -> None:
        await self._server.kill()
        shutil.copytree(self._store, self._copy)
        await self._server.start()

    async def restore(self) -> None:
        """Restore all streams if `whole`, otherwise all but the settle log."""
        await self._server.kill()
        streams = "jetstream/$G/streams"
        for old in (self._copy / streams).iterdir():
            if self._whole or not old.name.startswith("SETTLED"):
                shutil.rmtree(self._store / streams / old.name)
                shutil.copytree(old, self._store / streams / old.name)
        await self._server.start()


@pytest.mark.parametrize("running", [True, False], ids=["node runs", "node restarts"])
async def test_messages_after_a_rollback_are_handled(world, running):
    """L: they get sequences that were settled before, and are handled all the same: when all streams are rolled back,
    and then when all but the settle log are.
    """
    node = await world.node(lease_ttl=10 if running else 2)
    await world.topics("acme", "bolt")
    producer = await world.producer()

    async def put(name: str, count: int) -> None:
        await world.put(producer, [*some("acme", name, count), *some("bolt", name, count, order="first fail 1")])

    for name, whole in (("all", True), ("most", False)):
        await put(f"{name}-a", 40)
        await world.handled()
        backup = Backup(world, name, whole=whole)
        await backup.make()
        await put(f"{name}-b", 40)
        await world.handled()
        before = dict(world.acknowledged)
        await until(lambda where=before: _settled(world, where), what="all of them to be settled")
        if not running:
            await node.kill()
        await backup.restore()
        await put(f"{name}-c", 60)
        if not running:
            await node.start()
        again = {world.acknowledged[f"acme-{name}-c-{number}"] for number in range(60)}
        assert {before[f"acme-{name}-b-{number}"] for number in range(40)} <= again
        await world.handled()
        assert [] == world.refused
        await put(f"{name}-d", 40)
        await world.handled()
    assert 0 == await node.stop()
    assert await _settled(world, world.acknowledged)


async def _settled(world, where) -> bool:
    logs = await settle_logs.read(world.settings, 8)
    return all(sequence in logs[stream].settled() for stream, sequence in where.values())


UNROUTABLE = {
    "lanes.online.{p}.acme.0.urgent": "there is no priority",
    "lanes.online.{p}.acme.abc.mid": "not a group number",
    "lanes.online.{p}.acme.007.mid": "not a group number",
    "lanes.online.{p}.acme.-1.mid": "not a group number",
    "lanes.online.{p}._acme.0.mid": "project",
    "lanes.online.{p}.açme.0.mid": "project",
    "lanes.online.{p}.$JS.0.mid": "project",
    "later.online.{p}.acme.0.urgent.1": "there is no priority",
    "later.online.{p}.acme.0.mid.soon": "hour",
    "later.online.{p}.acme.0.mid.-5": "hour",
}


async def test_unroutable_messages_become_dead_letters(world):
    """L: with subject and reason, while the node runs and when it starts; the messages behind them are handled."""
    node = await world.node()
    await world.topics("acme")
    producer = await world.producer()
    await world.put(producer, [one("acme", "first")])
    await world.handled()
    partition = world.acknowledged["acme-first"][0].rpartition("_")[2]
    reasons = {subject.format(p=partition): reason for subject, reason in UNROUTABLE.items()}
    dead = await world.dead_letters()
    client = await nats.connect(world.servers.nats.url)
    expected = 0
    for at_start in (False, True):
        if at_start:
            assert 0 == await node.stop()
        # a running node looks for new hours only once a minute
        subjects = [subject for subject in reasons if at_start or subject.startswith("lanes")]
        for subject in subjects:
            await client.jetstream().publish(subject, subject.encode(), headers={"Own": "kept"})
        if at_start:
            await node.start()
        await world.put(producer, some("acme", f"behind-{at_start}", 50, order="first fail 1"))
        await world.handled()
        expected += len(subjects)

        async def all_dead(count: int = expected) -> bool:
            return len(await dead.read()) >= count

        await until(all_dead, 30, "the unroutable messages to be dead letters")
        dead_letters = (await dead.read())[expected - len(subjects) :]
        assert sorted(subjects) == sorted(dead_letter.subject for dead_letter in dead_letters)
        for dead_letter in dead_letters:
            found = dead_letter.project, dead_letter.body, dead_letter.headers["Own"]
            assert ("_stray", dead_letter.subject.encode(), "kept") == found
            assert reasons[dead_letter.subject] in dead_letter.reason
    await client.close()
    assert 0 == await node.stop()
    assert expected == len(await dead.read())
