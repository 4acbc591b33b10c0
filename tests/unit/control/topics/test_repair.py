"""What somebody else spoils under `accepted/`, the leader writes anew: nodes read nothing else (fault 19)."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.cluster.topics.topic_cache import TopicCache
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.topics.accepted_view import AcceptedView
from evenlane.engine.control.topics.accepted_writer import AcceptedWriter
from evenlane.engine.control.topics.client import TopicClient
from evenlane.quota.topics.topic import accept, complete, decode_accepted, encode, parse_spec
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Absent, CreatedAt, Delete, Event, KeyValue, Listing, ModifiedAt, Put
from tests.support.until import until

ROOT = "/evenlane/online/"
KEY = ROOT + "accepted/acme"
GOOD = accept(complete(parse_spec(b'{"qps": 100}'), ClusterConfig()), 5, None)


def stored(value, revision, key=KEY):
    return KeyValue(key, value, 1, revision, 0)


class TestStands:
    """By revision: what the leader wrote itself is told to it, too, and perhaps late."""

    @pytest.fixture
    def view(self):
        return AcceptedView("online", [stored(encode(GOOD), 7)])

    def test_what_is_read_is_compared_with(self, view):
        put = Put(KEY, b"")
        assert {"acme": GOOD} == view.accepted
        assert [ModifiedAt(KEY, 7)] == [*view.compared([put, Put(ROOT + "history/acme/1", b"")])]
        view.written([put], 9)
        assert [ModifiedAt(KEY, 9)] == [*view.compared([put])]
        view.written([Delete(KEY)], 11)
        assert [Absent(KEY)] == [*view.compared([put])]

    @pytest.mark.parametrize("revision", [7, 6])
    def test_its_own_writes_and_older_ones_are_no_damage(self, view, revision):
        view.apply_events([Event("put", stored(b"rubbish", revision)), Event("delete", stored(b"", revision))])
        view.apply_events([Listing(revision, (stored(b"rubbish", revision),)), Listing(revision, ())])
        assert {} == view.damaged

    def test_a_state_older_than_its_own_writes(self, view):
        """Of a listing alone: an event may be of another key."""
        view.apply_events([Listing(8, (stored(encode(GOOD), 7),)), Event("delete", stored(b"", 6, KEY + "x"))])
        assert not view.is_stale
        view.written([Put(KEY, b"")], 9)
        view.apply_events([Listing(8, (stored(encode(GOOD), 7),))])
        assert view.is_stale

    def test_a_key_is_older_than_its_own_write(self, view):
        """Etcd was restored, and its revision has overtaken: what is missing wasn't deleted (F2)."""
        view.apply_events([Listing(100, (stored(encode(GOOD), 7),))])
        assert not view.is_stale
        view.apply_events([Listing(100, (stored(encode(GOOD), 6),))])
        assert view.is_stale

    @pytest.mark.parametrize(
        ("reported", "compare"),
        [
            (Event("put", stored(b"rubbish", 9)), ModifiedAt(KEY, 9)),
            (Event("put", stored(b'{"qps": 5}', 9)), ModifiedAt(KEY, 9)),
            (Listing(9, (stored(b"\xff", 9),)), ModifiedAt(KEY, 9)),
            (Event("delete", stored(b"", 9)), Absent(KEY)),
            (Listing(9, ()), Absent(KEY)),
        ],
    )
    def test_what_others_spoil_is_written_over_where_it_still_stands_so(self, view, reported, compare):
        view.apply_events([reported])
        assert ["acme"] == [*view.damaged]
        put = Put(KEY, encode(GOOD))
        assert [compare] == [*view.compared([put])]
        view.written([put], 10)
        assert {} == view.damaged

    @pytest.mark.parametrize("name", ["\ufffd", "", "a/b", "x" * 65])
    def test_what_is_no_project_is_passed_over(self, name):
        """A key that is no UTF-8 is told as another one: no comparison with it would ever hold."""
        strange = stored(encode(GOOD), 7, ROOT + "accepted/" + name)
        view = AcceptedView("online", [strange])
        view.apply_events([Event("put", stored(b"rubbish", 9, strange.key)), Event("delete", strange), Listing(9, ())])
        assert ({}, {}, {}) == (view.accepted, view.unreadable, view.damaged)

    def test_what_others_write_that_can_be_read_is_found_out_at_the_next_change(self, view):
        view.apply_events(
            [Event("put", stored(b"rubbish", 8)), Event("put", stored(encode(replace(GOOD, number=5)), 9))]
        )
        assert {} == view.damaged
        assert [ModifiedAt(KEY, 9)] != [*view.compared([Put(KEY, b"")])]


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
def topic_client(etcd):
    return TopicClient(etcd, "online", ClusterConfig(), "ann")


@asynccontextmanager
async def leader(etcd, **more):
    made = TopicController(etcd.peer(), "online", ClusterConfig(), "n1", **more)
    await made.start()
    await asyncio.wait_for(made.leading.wait(), 5)
    try:
        yield made
    finally:
        await made.close()


async def value(etcd, project="acme"):
    found = await etcd.get(f"{ROOT}accepted/{project}")
    return None if found is None else found.value


async def restored_again(etcd, wanted, project="acme"):
    async def check():
        return await value(etcd, project) == wanted

    await until(check)


async def begun(topic_client):
    """A topic with groups that drain."""
    await topic_client.change("acme", {"qps": 200})
    await topic_client.change("acme", {"qps": 100})


@pytest.mark.parametrize("spoil", [b"rubbish", b"{}", b"", None])
async def test_the_leader_writes_anew_exactly_what_was_accepted(etcd, topic_client, spoil):
    """K6: no group that drains is forgotten; nor is it a change."""
    async with leader(etcd):
        await begun(topic_client)
        before, entries = await value(etcd), (await topic_client.history("acme")).entries
        await (etcd.delete(KEY) if spoil is None else etcd.put(KEY, spoil))
        await restored_again(etcd, before)
        assert (2, 3) == decode_accepted(before).draining
        assert entries == (await topic_client.history("acme")).entries
        assert (await topic_client.get("acme")).accepted
        assert 2 == (await topic_client.change("acme", {"qps": 50})).in_effect.number


async def test_a_deleted_topic_too_which_has_no_wish(etcd, topic_client):
    """Row 19: what waits of it isn't forgotten."""
    async with leader(etcd) as controller:
        await begun(topic_client)
        await topic_client.delete("acme")
        before = await value(etcd)
        await etcd.put(KEY, b"rubbish")
        await restored_again(etcd, before)
        assert await controller.remove_groups("acme", range(4))
        assert None is await value(etcd)


async def test_one_that_went_does_not_come_back(etcd, topic_client):
    async with leader(etcd) as controller:
        await begun(topic_client)
        await topic_client.delete("acme")
        assert await controller.remove_groups("acme", range(4))
        await topic_client.change("other", {"qps": 1})
        await etcd.put(KEY, b"rubbish")
        await topic_client.change("other", {"qps": 2})
        assert b"rubbish" == await value(etcd)


async def test_a_change_and_a_damage_at_once_are_one_write(etcd, topic_client):
    async with leader(etcd) as controller:
        await begun(topic_client)
        await etcd.txn([], [Put(KEY, b"rubbish"), Put(ROOT + "topics/acme", b'{"qps": 7}')])

        async def changed():
            return (await topic_client.get("acme")).accepted

        await until(changed)
        now = decode_accepted(await value(etcd))
        assert (7.0, 2, (1, 2, 3)) == (now.topic.qps, now.number, now.draining)
        assert controller.leading.is_set()


async def test_whoever_spoils_it_again_and_again_is_answered_once_each(etcd, topic_client):
    """No loop: the leader's own writes are none to be mended."""
    async with leader(etcd):
        await begun(topic_client)
        before, revision = await value(etcd), etcd.store.revision
        for _ in range(5):
            await etcd.put(KEY, b"rubbish")
            await restored_again(etcd, before)
        assert revision + 10 == etcd.store.revision
        await topic_client.change("other", {"qps": 1})
        assert revision + 12 == etcd.store.revision


async def test_to_hear_of_its_own_writes_holds_up_no_edit(etcd, topic_client, monkeypatch):
    """X4: after each publication there is a pause."""
    received, apply = [], AcceptedView.apply_events

    def receives(view, reported):
        received.extend(each.item.mod_revision for each in reported)
        apply(view, reported)

    published, publish = [], AcceptedWriter.publish

    async def publishes(writer, changes):
        published.append(changes)
        return await publish(writer, changes)

    async with leader(etcd):
        await topic_client.change("acme", {"qps": 1})
        monkeypatch.setattr(AcceptedView, "apply_events", receives)
        monkeypatch.setattr(AcceptedWriter, "publish", publishes)
        for qps in (2, 3, 4):
            await topic_client.change("acme", {"qps": qps})
            revision = (await etcd.get(KEY)).mod_revision
            await until(lambda wanted=revision: wanted in received)
        assert 3 == len(published)


async def test_thousands_at_once_are_few_writes_and_one_line_of_the_log(etcd, topic_client):
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
            await restored_again(etcd, before, "p1999")
        assert b"rubbish" not in {item.value for item in (await etcd.list(ROOT + "accepted/")).items}
        assert etcd.store.revision - revision <= 2_000 + 25
        assert 2_000 == sum(line.get("projects", 0) for line in lines)


async def test_one_that_is_spoilt_in_that_very_moment_holds_up_no_other(etcd, topic_client, monkeypatch):
    """Nor does the leader begin anew: it would read all topics again, each time."""
    async with leader(etcd) as controller:
        for project in ("acme", "other"):
            await topic_client.change(project, {"qps": 100})
        good = [await value(etcd, project) for project in ("acme", "other")]
        txn, tries = controller._coordination.txn, []

        async def spoilt(compare, then, *rest):
            if not tries:
                await etcd.put(KEY, b"again")
            tries.append([op.key for op in then])
            return await txn(compare, then, *rest)

        monkeypatch.setattr(controller._coordination, "txn", spoilt)
        with capture_logs() as lines:
            await etcd.txn([], [Put(KEY, b"rubbish"), Put(ROOT + "accepted/other", b"rubbish")])
            await restored_again(etcd, good[1], "other")
            await restored_again(etcd, good[0])
        assert [2, 1, 1, 1] == [*map(len, tries)]
        assert "begins anew" not in {line["event"] for line in lines}


async def test_what_etcd_has_forgotten_is_written_anew(etcd, topic_client):
    """It was restored from a backup, or lost its last writes as it was killed: what the leader knew is newer."""
    topic_cache = TopicCache(etcd.peer(), "online")
    await topic_cache.start()
    async with leader(etcd, last_good=topic_cache.get):
        await begun(topic_client)
        good = await value(etcd)
        spoilt = await etcd.put(KEY, b"rubbish")
        await restored_again(etcd, good)
        etcd.roll_back(spoilt)
        assert b"rubbish" == await value(etcd)
        await restored_again(etcd, good)
        assert (await topic_client.change("acme", {"qps": 7})).accepted
    await topic_cache.close()


async def test_a_former_leader_mends_nothing(etcd):
    """O, fault 7."""
    view = AcceptedView("online", [stored(b"rubbish", 1)])
    publishing = AcceptedWriter(etcd, "online", CreatedAt(ROOT + "leader", 1), view)
    assert not await publishing.repair({"acme": GOOD})
    assert None is await value(etcd)


class TestAnotherLeader:
    """It was spoilt while nobody led."""

    async def spoilt(self, etcd, topic_client):
        async with leader(etcd):
            await begun(topic_client)
        before = await value(etcd)
        await etcd.put(KEY, b"rubbish")
        return before

    async def test_who_knows_it_from_before_writes_it_anew(self, etcd, topic_client):
        """A node that follows the topics has read it."""
        async with leader(etcd):
            await begun(topic_client)
        topic_cache = TopicCache(etcd.peer(), "online")
        await topic_cache.start()
        before = await value(etcd)
        await etcd.put(KEY, b"rubbish")
        async with leader(etcd, last_good=topic_cache.get):
            await restored_again(etcd, before)
            assert 2 == len((await topic_client.history("acme")).entries)
        await topic_cache.close()

    async def test_who_does_not_makes_it_from_the_wish(self, etcd, topic_client):
        """Its history goes on."""
        await self.spoilt(etcd, topic_client)
        async with leader(etcd):

            async def mended():
                return (await topic_client.get("acme")).accepted

            await until(mended)
            now = (await topic_client.get("acme")).in_effect
            assert (100.0, 2) == (now.topic.qps, now.number)
            assert [2, 1, 0] == [entry.number for entry in (await topic_client.history("acme")).entries]

    async def test_what_nobody_knows_is_left_and_told(self, etcd, topic_client):
        await self.spoilt(etcd, topic_client)
        await etcd.delete(ROOT + "topics/acme")
        async with leader(etcd):
            await topic_client.change("other", {"qps": 1})
            status = await topic_client.get("acme")
            assert b"rubbish" == await value(etcd)
            assert "what was accepted can't be read (it is not JSON" in status.reason
            assert status.reason.endswith("and there is no wish to make it from")
            assert (await topic_client.change("acme", {"qps": 5})).accepted
