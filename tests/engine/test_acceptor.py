"""The leader accepts topics: good wishes come into force, bad ones change nothing and raise an alarm."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.acceptance import Acceptance, batches
from engine.acceptor import Acceptor
from engine.facts import Facts
from engine.servers.etcd import EtcdServer
from engine.topics import TopicBook
from quota.topic import decode_accepted
from ring.coordination import Event, KeyValue, Listing
from ring.etcd import EtcdCoordination
from ring.memory import MemoryCoordination
from tests.quota.cases import BAD
from tests.wait import until

ROOT = "/evenlane/online/"


@pytest.fixture
def coordination():
    return MemoryCoordination()


@pytest.fixture
async def acceptor(coordination):
    made = Acceptor(coordination.peer(), "online", Facts(), "one")
    yield made
    await made.close()


async def accepted(coordination, project):
    item = await coordination.get(ROOT + "accepted/" + project)
    return None if item is None else decode_accepted(item.value)


async def in_force(coordination, project, qps):
    """Waits until the project's accepted topic has this rate."""

    async def check():
        now = await accepted(coordination, project)
        return now if now is not None and now.topic.qps == qps else None

    return await until(check)


async def wish(coordination, project, raw):
    return await coordination.put(ROOT + "topics/" + project, raw)


class TestAccepting:
    async def test_a_good_wish_comes_into_force_with_its_revision(self, coordination, acceptor):
        """X4."""
        first = await wish(coordination, "a", b'{"qps": 100}')
        await acceptor.start()
        before = await in_force(coordination, "a", 100)
        assert (before.active, before.draining, before.revision) == (2, (), first)
        second = await wish(coordination, "a", b'{"qps": 10}')
        after = await in_force(coordination, "a", 10)
        assert (after.active, after.draining, after.revision) == (1, (1,), second)
        assert {} == acceptor.alarms

    @pytest.mark.parametrize("raw", [raw for raw, _, _ in BAD[::7]])
    async def test_a_bad_wish_changes_nothing_and_raises_an_alarm(self, coordination, acceptor, raw):
        """Fault row 19: the last good one stays, the others notice nothing."""
        await wish(coordination, "a", b'{"qps": 100}')
        await acceptor.start()
        good = await in_force(coordination, "a", 100)
        await wish(coordination, "a", raw)
        await until(lambda: acceptor.alarms)
        assert good == await accepted(coordination, "a")
        assert {"a"} == set(acceptor.alarms)
        assert acceptor.refused == 1
        await wish(coordination, "b", b'{"qps": 5}')
        await in_force(coordination, "b", 5)
        await wish(coordination, "a", b'{"qps": 7}')
        await in_force(coordination, "a", 7)
        await until(lambda: not acceptor.alarms)

    async def test_a_wish_that_the_cluster_cannot_carry_out(self, coordination, acceptor):
        await acceptor.start()
        await wish(coordination, "a", b'{"qps": 1000, "groups": 2}')
        await until(lambda: acceptor.alarms)
        assert acceptor.alarms["a"].startswith("groups must be at least 7 for 1,000 QPS")
        assert await accepted(coordination, "a") is None

    @pytest.mark.parametrize("name", ["", "a/b", "a b", ".", "*", "x" * 65, "a\n"])
    async def test_a_wish_under_a_bad_name_is_refused(self, coordination, acceptor, name):
        """Fault row 20."""
        await acceptor.start()
        await wish(coordination, name, b'{"qps": 5}')
        await until(lambda: acceptor.alarms)
        assert "is not valid" in acceptor.alarms[name]
        assert () == (await coordination.list(ROOT + "accepted/")).items

    async def test_a_deleted_wish_lets_the_topic_drain(self, coordination, acceptor):
        await wish(coordination, "a", b'{"qps": 100}')
        await acceptor.start()
        await in_force(coordination, "a", 100)
        await coordination.delete(ROOT + "topics/a")

        async def drains():
            return (await accepted(coordination, "a")).topic.state == "draining"

        await until(drains)
        await wish(coordination, "a", b'{"qps": 200}')
        assert (await in_force(coordination, "a", 200)).topic.state == "active"

    async def test_a_lost_connection_changes_nothing_that_stands(self, coordination, acceptor):
        """Fault 11."""
        await wish(coordination, "a", b'{"qps": 100}')
        await wish(coordination, "bad", b"{}")
        await acceptor.start()
        await in_force(coordination, "a", 100)
        revision = coordination.store.revision
        acceptor._coordination.disconnect_watches()
        await wish(coordination, "b", b'{"qps": 1}')
        await in_force(coordination, "b", 1)
        assert coordination.store.revision == revision + 2
        assert acceptor.refused == 1

    async def test_thousands_are_accepted_in_few_writes(self, coordination, acceptor):
        """E2."""
        for n in range(3_000):
            await wish(coordination, f"p{n}", b'{"qps": 5}')
        before = coordination.store.revision
        await acceptor.start()
        await in_force(coordination, "p2999", 5)
        assert len((await coordination.list(ROOT + "accepted/")).items) == 3_000
        assert coordination.store.revision - before <= 31

    async def test_an_accepted_value_that_was_damaged_is_written_anew(self, coordination, acceptor):
        await wish(coordination, "a", b'{"qps": 100}')
        await coordination.put(ROOT + "accepted/a", b"rubbish")
        await acceptor.start()

        async def mended():
            return b"rubbish" != (await coordination.get(ROOT + "accepted/a")).value

        await until(mended)
        await in_force(coordination, "a", 100)


class TestLeading:
    async def test_the_key_says_who_and_since_when(self, coordination, acceptor):
        """P4."""
        await acceptor.start()
        await acceptor.leading.wait()
        leader = await coordination.get(ROOT + "leader")
        assert {"id", "since"} == set(json.loads(leader.value))
        assert json.loads(leader.value)["id"] == "one"
        assert leader.lease

    async def test_one_leads_and_another_takes_over_when_it_closes(self, coordination, acceptor):
        """P4."""
        other = Acceptor(coordination.peer(), "online", Facts(), "two")
        await acceptor.start()
        await acceptor.leading.wait()
        await other.start()
        await wish(coordination, "a", b'{"qps": 100}')
        await in_force(coordination, "a", 100)
        assert not other.leading.is_set()
        await acceptor.close()
        await other.leading.wait()
        await wish(coordination, "a", b'{"qps": 50}')
        await in_force(coordination, "a", 50)
        await other.close()
        assert await coordination.get(ROOT + "leader") is None

    async def test_one_of_many_leads(self, coordination):
        """Fault 18."""
        many = [Acceptor(coordination.peer(), "online", Facts(), f"n{n}") for n in range(20)]
        for each in many:
            await each.start()
        while many:
            await until(lambda: any(each.leading.is_set() for each in many))
            leaders = [each for each in many if each.leading.is_set()]
            assert len(leaders) == 1
            await leaders[0].close()
            many.remove(leaders[0])

    async def test_takes_over_when_the_lease_of_a_dead_one_ends(self, coordination, acceptor):
        """P4, fault 6."""
        dead = Acceptor(coordination.peer(), "online", Facts(), "dead")
        await dead.start()
        await dead.leading.wait()
        await acceptor.start()
        dead._coordination.cut()
        coordination.advance(10)
        await acceptor.leading.wait()
        await wish(coordination, "a", b'{"qps": 100}')
        await in_force(coordination, "a", 100)
        await dead.close()

    async def test_a_former_leader_writes_nothing(self, coordination, acceptor):
        """O, fault 7: both believe that they lead, and etcd refuses the one."""
        await acceptor.start()
        await acceptor.leading.wait()
        zombie, leader = acceptor, await coordination.get(ROOT + "leader")
        await coordination.delete(ROOT + "leader")
        await coordination.put(ROOT + "leader", leader.value)
        changes = Acceptance("online", Facts(), {}).changes(
            Event("put", KeyValue(ROOT + "topics/a", b'{"qps": 5}', 1, 1, 0))
        )
        assert not await zombie._published(changes, leader.create_revision)
        assert await accepted(coordination, "a") is None
        await until(lambda: not zombie.leading.is_set())

    async def test_stands_again_after_the_key_was_deleted_by_hand(self, coordination, acceptor):
        await acceptor.start()
        await acceptor.leading.wait()
        first = await coordination.get(ROOT + "leader")
        await coordination.delete(ROOT + "leader")

        async def anew():
            now = await coordination.get(ROOT + "leader")
            return now is not None and now.create_revision != first.create_revision

        await until(anew)
        await wish(coordination, "a", b'{"qps": 100}')
        await in_force(coordination, "a", 100)

    async def test_goes_on_after_etcd_was_silent(self, coordination, acceptor):
        await acceptor.start()
        await acceptor.leading.wait()
        acceptor._coordination.cut()
        await wish(coordination, "a", b'{"qps": 100}')
        acceptor._coordination.heal()
        await in_force(coordination, "a", 100)

    async def test_leads_no_longer_than_its_lease_may_last(self, coordination):
        """Fault 10: cut off from etcd, a leader knows by itself when its time is up."""
        short = Acceptor(coordination.peer(), "online", Facts(), "short", lease_ttl_s=1)
        await short.start()
        await short.leading.wait()
        short._coordination.cut()
        await until(lambda: not short.leading.is_set(), timeout=5.0)
        assert await coordination.get(ROOT + "leader") is not None
        await short.close()

    async def test_the_contract_of_its_life(self, acceptor):
        await acceptor.close()
        await acceptor.start()
        await acceptor.start()
        await acceptor.close()
        await acceptor.close()
        assert not acceptor.leading.is_set()


def _stored(project, raw, revision):
    return KeyValue(f"{ROOT}topics/{project}", raw, revision, revision, 0)


_GOOD = {b'{"qps": 5}': 5.0, b'{"qps": 100}': 100.0, b'{"qps": 5, "groups": 9}': 5.0}
_BAD = (b"", b'{"qps": -5}')
_wishes = st.sampled_from([*_GOOD, *_BAD, None])


@given(st.lists(st.tuples(st.sampled_from("abc"), _wishes, st.booleans())))
def test_what_is_in_force_is_the_last_good_wish(steps):
    """Whatever was written, and wherever the leader had to list again."""
    acceptance = Acceptance("online", Facts(), {})
    stored, published, expected = {}, {}, {}
    for revision, (project, raw, lists) in enumerate(steps, start=1):
        item = _stored(project, raw or b"", revision)
        if raw is None:
            stored.pop(project, None)
            if project in expected:
                expected[project] = (expected[project][0], "draining")
        else:
            stored[project] = item
            if raw in _GOOD:
                expected[project] = (_GOOD[raw], "active")
        listing = Listing(revision, tuple(stored.values()))
        told = listing if lists else Event("delete" if raw is None else "put", item)
        published |= acceptance.changes(told)
        assert acceptance.changes(listing) == {}
    assert published == acceptance.accepted
    assert expected == {project: (now.topic.qps, now.topic.state) for project, now in published.items()}
    assert {project for project, item in stored.items() if item.value in _BAD} == set(acceptance.alarms)


@given(st.lists(st.binary(max_size=20)), st.integers(1, 5), st.integers(1, 40))
def test_batches_hold_all_in_order_within_their_bounds(values, most, most_bytes):
    changes = [(str(n), value) for n, value in enumerate(values)]
    parts = list(batches(changes, most, most_bytes))
    assert changes == [each for part in parts for each in part]
    for part in parts:
        assert 1 <= len(part) <= most
        assert len(part) == 1 or sum(len(value) for _, value in part) <= most_bytes


@pytest.mark.real
async def test_on_a_real_etcd_that_is_killed_on_the_way(tmp_path):
    """X4, P4: a wish reaches a node's book within 1 s, also after a crash of etcd and a change of leader."""
    server = EtcdServer(tmp_path, fast=True)
    await server.start()
    clients = [EtcdCoordination([server.endpoint]) for _ in range(3)]
    acceptors = [Acceptor(client, "online", Facts(), "n") for client in clients[:2]]
    book = TopicBook(clients[2], "online")
    try:
        await book.start()
        for each in acceptors:
            await each.start()
        await until(lambda: any(each.leading.is_set() for each in acceptors))
        await wish(clients[2], "a", b'{"qps": 100}')
        await book.wait_for("a", 1.0)
        leader = next(each for each in acceptors if each.leading.is_set())
        await leader.close()
        await server.kill()
        await server.start()
        await until(lambda: _put_again(clients[2]), timeout=20.0)
        await until(lambda: book.get("a").topic.qps == 200, timeout=15.0)
        await wish(clients[2], "a", b'{"qps": 300}')
        await until(lambda: book.get("a").topic.qps == 300, timeout=1.0)
    finally:
        await asyncio.gather(book.close(), *(each.close() for each in acceptors))
        await asyncio.gather(*(client.close() for client in clients))
        await server.stop()


async def _put_again(client):
    from ring.coordination import Unavailable

    try:
        return await wish(client, "a", b'{"qps": 200}')
    except Unavailable:
        return 0
