"""Repair of `accepted/`: the leader rewrites values that others have corrupted or deleted (fault 19)."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import PAUSE_S, TopicController
from evenlane.engine.control.topics.accepted_view import AcceptedView
from evenlane.engine.control.topics.accepted_writer import AcceptedWriter
from evenlane.engine.control.topics.client import TopicClient
from evenlane.quota.topics.topic import decode_accepted
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import CreatedAt, PutKey
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time
from tests.unit.control.topics.accepted_topics import GOOD, KEY, ROOT, stored


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
def topic_client(etcd):
    return TopicClient(etcd, "online", ClusterConfig(), "ann")


@asynccontextmanager
async def leader(etcd, client=None, **more):
    made = TopicController(client or etcd.peer(), "online", ClusterConfig(), "n1", **more)
    await made.start()
    await asyncio.wait_for(made.leading.wait(), 30)
    try:
        yield made
    finally:
        await made.close()


async def value(etcd, project="acme"):
    found = await etcd.get(f"{ROOT}accepted/{project}")
    return None if found is None else found.value


async def becomes(etcd, expected, project="acme"):
    """Wait until the project's accepted topic has this value."""

    async def check():
        return await value(etcd, project) == expected

    await until(check)


async def lower_groups(topic_client):
    """Make a topic with groups that drain."""
    await topic_client.change("acme", {"qps": 200})
    await topic_client.change("acme", {"qps": 100})


@pytest.mark.parametrize("damage", [b"rubbish", b"{}", b"", None])
async def test_leader_restores_exactly_the_accepted_value(etcd, topic_client, damage):
    """K6: draining groups stay, and the repair is no change of the topic."""
    async with leader(etcd):
        await lower_groups(topic_client)
        before, entries = await value(etcd), (await topic_client.history("acme")).entries
        await (etcd.delete(KEY) if damage is None else etcd.put(KEY, damage))
        await becomes(etcd, before)
        assert (2, 3) == decode_accepted(before).draining
        assert entries == (await topic_client.history("acme")).entries
        assert (await topic_client.get("acme")).is_accepted
        assert 2 == (await topic_client.change("acme", {"qps": 50})).in_effect.number


async def test_deleted_topic_is_restored_without_a_spec(etcd, topic_client):
    """Fault 19: its backlog is not lost."""
    async with leader(etcd) as controller:
        await lower_groups(topic_client)
        await topic_client.delete("acme")
        before = await value(etcd)
        await etcd.put(KEY, b"rubbish")
        await becomes(etcd, before)
        assert await controller.remove_groups("acme", range(4))
        assert None is await value(etcd)


async def test_removed_topic_is_not_restored(etcd, topic_client):
    async with leader(etcd) as controller:
        await lower_groups(topic_client)
        await topic_client.delete("acme")
        assert await controller.remove_groups("acme", range(4))
        await topic_client.change("other", {"qps": 1})
        await etcd.put(KEY, b"rubbish")
        await topic_client.change("other", {"qps": 2})
        assert b"rubbish" == await value(etcd)


async def test_change_and_damage_at_once_need_one_write(etcd, topic_client):
    async with leader(etcd) as controller:
        await lower_groups(topic_client)
        await etcd.txn([], [PutKey(KEY, b"rubbish"), PutKey(ROOT + "topics/acme", b'{"qps": 7}')])

        async def changed():
            return (await topic_client.get("acme")).is_accepted

        await until(changed)
        now = decode_accepted(await value(etcd))
        assert (7.0, 2, (1, 2, 3)) == (now.topic.qps, now.number, now.draining)
        assert controller.leading.is_set()


async def test_each_damage_is_repaired_once(etcd, topic_client):
    """The leader's own writes are no damage, so there is no loop."""
    async with leader(etcd):
        await lower_groups(topic_client)
        before, revision = await value(etcd), etcd.store.revision
        for _ in range(5):
            await etcd.put(KEY, b"rubbish")
            await becomes(etcd, before)
        assert revision + 10 == etcd.store.revision
        await topic_client.change("other", {"qps": 1})
        assert revision + 12 == etcd.store.revision


@in_virtual_time
async def test_own_writes_delay_no_edit():
    """X4: the leader pauses after each publication, and not once more when its watch reports that write."""
    etcd, clock = MemoryCoordination(), asyncio.get_running_loop().time
    topic_client = TopicClient(etcd, "online", ClusterConfig(), "ann")
    async with leader(etcd):
        for qps in (1, 2, 3):
            await asyncio.sleep(1.5 * PAUSE_S)
            began = clock()
            await topic_client.change("acme", {"qps": qps})
            assert clock() - began < 0.25 * PAUSE_S


async def test_thousands_of_repairs_need_few_writes(etcd, topic_client):
    async with leader(etcd):
        for n in range(2_000):
            await etcd.put(f"{ROOT}topics/p{n}", b'{"qps": 5}')

        async def last():
            return await value(etcd, "p1999")

        before = await until(last)
        revision = etcd.store.revision
        with capture_logs() as lines:
            for n in range(2_000):
                await etcd.put(f"{ROOT}accepted/p{n}", b"rubbish")
            await becomes(etcd, before, "p1999")
        assert b"rubbish" not in {item.value for item in (await etcd.list(ROOT + "accepted/")).items}
        assert etcd.store.revision - revision <= 2_000 + 25
        assert 2_000 == sum(line.get("projects", 0) for line in lines)


async def test_damage_during_a_repair_delays_no_other_topic(etcd, topic_client, monkeypatch):
    """The leader doesn't read all topics again, either."""
    client = etcd.peer()
    async with leader(etcd, client):
        for project in ("acme", "other"):
            await topic_client.change(project, {"qps": 100})
        good = [await value(etcd, project) for project in ("acme", "other")]
        txn, tries = client.txn, []

        async def damaged(compare, then, *rest):
            if not tries:
                await etcd.put(KEY, b"again")
            tries.append([op.key for op in then])
            return await txn(compare, then, *rest)

        monkeypatch.setattr(client, "txn", damaged)
        with capture_logs() as lines:
            await etcd.txn([], [PutKey(KEY, b"rubbish"), PutKey(ROOT + "accepted/other", b"rubbish")])
            await becomes(etcd, good[1], "other")
            await becomes(etcd, good[0])
        assert [2, 1, 1, 1] == [*map(len, tries)]
        assert "begins anew" not in {line["event"] for line in lines}


async def test_value_lost_by_a_rollback_is_rewritten(etcd, topic_client):
    """Etcd was restored from a backup, or lost its last writes when it was killed. The leader knows newer values."""
    topic_cache = TopicCache(etcd.peer(), "online")
    await topic_cache.start()
    async with leader(etcd, last_good=topic_cache.get):
        await lower_groups(topic_client)
        good = await value(etcd)
        damaged = await etcd.put(KEY, b"rubbish")
        await becomes(etcd, good)
        etcd.roll_back(damaged)
        assert b"rubbish" == await value(etcd)
        await becomes(etcd, good)
        assert (await topic_client.change("acme", {"qps": 7})).is_accepted
    await topic_cache.close()


async def test_previous_leader_repairs_nothing(etcd):
    """O, fault 7."""
    view = AcceptedView("online", [stored(b"rubbish", 1)])
    writer = AcceptedWriter(etcd, "online", CreatedAt(ROOT + "leader", 1), view)
    assert not await writer.repair({"acme": GOOD})
    assert None is await value(etcd)


class TestDamageBetweenLeaders:
    async def damage(self, etcd, topic_client):
        async with leader(etcd):
            await lower_groups(topic_client)
        before = await value(etcd)
        await etcd.put(KEY, b"rubbish")
        return before

    async def test_leader_with_a_cached_topic_restores_it(self, etcd, topic_client):
        """A node that follows the topics has read it before."""
        async with leader(etcd):
            await lower_groups(topic_client)
        topic_cache = TopicCache(etcd.peer(), "online")
        await topic_cache.start()
        before = await value(etcd)
        await etcd.put(KEY, b"rubbish")
        async with leader(etcd, last_good=topic_cache.get):
            await becomes(etcd, before)
            assert 2 == len((await topic_client.history("acme")).entries)
        await topic_cache.close()

    async def test_other_leader_accepts_the_spec_again(self, etcd, topic_client):
        """The history continues."""
        await self.damage(etcd, topic_client)
        async with leader(etcd):

            async def is_repaired():
                return (await topic_client.get("acme")).is_accepted

            await until(is_repaired)
            now = (await topic_client.get("acme")).in_effect
            assert (100.0, 2) == (now.topic.qps, now.number)
            assert [2, 1, 0] == [entry.number for entry in (await topic_client.history("acme")).entries]

    async def test_unknown_topic_is_left_and_reported(self, etcd, topic_client):
        await self.damage(etcd, topic_client)
        await etcd.delete(ROOT + "topics/acme")
        async with leader(etcd):
            await topic_client.change("other", {"qps": 1})
            status = await topic_client.get("acme")
            assert b"rubbish" == await value(etcd)
            assert "the accepted value can't be read (it is not JSON" in status.reason
            assert status.reason.endswith("and there is no spec to restore it from")
            assert (await topic_client.change("acme", {"qps": 5})).is_accepted


def in_format(raw, number):
    """The accepted topic, as a release writes it that has this newest format."""
    return json.dumps({**json.loads(raw), "format": number, "draining": {"of": "a later form"}}).encode()


@pytest.mark.parametrize("when", ["while it leads", "before it leads"])
async def test_topic_of_a_newer_release_is_left_alone(etcd, topic_client, when):
    """U2, U3: a leader of an older release neither repairs nor replaces it, and accepts the topics of others. It was
    accepted with groups that this release can't know.
    """
    async with leader(etcd):
        await lower_groups(topic_client)
        newer = in_format(await value(etcd), 2)
        if when == "while it leads":
            await etcd.put(KEY, newer)
            await leads_without_it(etcd, topic_client, newer)
    await etcd.put(KEY, newer)
    async with leader(etcd):
        await leads_without_it(etcd, topic_client, newer)
        await etcd.put(KEY, in_format(newer, 1))  # no newer one, but rubbish
        await topic_client.change("acme", {"qps": 6})


async def leads_without_it(etcd, topic_client, newer):
    """The leader gets a change of that topic, and one of another project."""
    with capture_logs() as logs:
        await etcd.put(f"{ROOT}topics/acme", b'{"qps": 5}')
        await topic_client.change("other", {"qps": 5})
        assert newer == await value(etcd)
        await until(lambda: "a topic is left to a newer release, which has accepted it" in {e["event"] for e in logs})
    assert newer == await value(etcd)
    assert (await topic_client.get("other")).is_accepted
    assert "format is 2, and this release reads only 1" in str((await topic_client.get("acme")).unreadable)
    await topic_client.delete("other")
