"""Topic history: an entry per change with its author, written by the leader, or by the client without one."""

import asyncio

import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.control.topics.history import (
    KEPT,
    ChangeAuthor,
    author_put,
    next_number,
    next_numbers,
)
from evenlane.engine.errors import UnknownProject
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import DeleteKey, KeyValue
from tests.support.until import until

CLUSTER_CONFIG = ClusterConfig()
OLD = b'{"number": %d, "revision": 1, "at": "", "by": null, "via": null, "changes": {}}'


class CountingClient(MemoryCoordination):
    """Keeps the prefixes that it has listed."""

    def __init__(self, store):
        super().__init__(store)
        self.listed = []

    async def list(self, prefix):
        self.listed.append(prefix)
        return await super().list(prefix)


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
def client(etcd):
    """The leader's own client of etcd."""
    return CountingClient(etcd.store)


@pytest.fixture
async def leader(client):
    made = TopicController(client, "online", CLUSTER_CONFIG, "n1")
    await made.start()
    await asyncio.wait_for(made.leading.wait(), 30)
    yield made
    await made.close()


def by(etcd, author, **tuning):
    return TopicClient(etcd, "online", CLUSTER_CONFIG, author, **tuning)


def summary(entries):
    return [(entry.by, entry.via, entry.changes) for entry in entries]


async def story(etcd):
    """Make changes as three people; return the summaries of their entries. A repeated change has none."""
    await by(etcd, "ann").change("acme", {"qps": 100}, via="topics set")
    await by(etcd, "bob").change("acme", {"qps": 120}, via="topics set")
    await by(etcd, "bob").change("acme", {"qps": 120}, via="topics set")
    await by(etcd, "cid").change("acme", {"state": "paused"}, via="topics pause")
    await by(etcd, "cid").delete("acme", via="topics delete")
    return [
        ("cid", "topics delete", {"deleted": (False, True)}),
        ("cid", "topics pause", {"state": ("active", "paused")}),
        ("bob", "topics set", {"qps": (100, 120), "groups": (2, 3), "burst": (1, 2), "weight": (100, 120)}),
        (
            "ann",
            "topics set",
            {"qps": (None, 100), "groups": (None, 2), "burst": (None, 1), "weight": (None, 100), "spread": (None, 12)},
        ),
    ]


async def test_leader_writes_authors_and_changes(etcd, leader):
    assert await story(etcd) == summary((await by(etcd, None).history("acme")).entries)


async def test_client_writes_history_without_a_leader(etcd):
    assert await story(etcd) == summary((await by(etcd, None).history("acme")).entries)


async def test_later_leaders_add_no_entry(etcd):
    """A new leader reconciles all specs again and finds them unchanged."""
    expected = await story(etcd)
    await by(etcd, "ann").change("acme", {"qps": 5})
    before = (await by(etcd, None).history("acme")).entries
    for name in ("n1", "n2"):
        controller = TopicController(etcd.peer(), "online", CLUSTER_CONFIG, name)
        await controller.start()
        await asyncio.wait_for(controller.leading.wait(), 30)
        await by(etcd, "dan").change("other", {"qps": 1})
        await controller.close()
    assert before == (await by(etcd, None).history("acme")).entries
    assert expected == summary(before[1:])


async def test_entry_has_time_and_revision_of_the_spec(etcd, leader):
    topic_client = by(etcd, "ann")
    status = await topic_client.change("acme", {"qps": 1})
    [entry] = (await topic_client.history("acme")).entries
    assert (0, status.revision) == (entry.number, entry.revision)
    assert entry.at.endswith("+00:00")


async def test_entry_without_a_leader_has_the_revision(etcd):
    status = await by(etcd, "ann").change("acme", {"qps": 1})
    assert [status.revision] == [entry.revision for entry in (await by(etcd, None).history("acme")).entries]


async def test_author_of_a_direct_write_is_unknown(etcd, leader):
    await by(etcd, "ann").change("acme", {"qps": 1})
    await etcd.put(names.key("online", "topics", "acme"), b'{"qps": 2}')

    async def two():
        entries = (await by(etcd, None).history("acme")).entries
        return entries if len(entries) == 2 else None

    assert [None, "ann"] == [entry.by for entry in await until(two)]


async def test_deletion_between_two_leaders_has_its_author(etcd, leader):
    """Fault 6."""
    made = await by(etcd, "ann").change("acme", {"qps": 1})
    await leader.close()
    await etcd.put(names.key("online", "leader"), b"{}")
    gone = DeleteKey(names.key("online", "topics", "acme"))
    await etcd.txn([], [gone, author_put("online", "acme", ChangeAuthor("bob", "topics delete", made.revision))])
    await etcd.delete(names.key("online", "leader"))
    other = TopicController(etcd.peer(), "online", CLUSTER_CONFIG, "n2")
    await other.start()
    try:

        async def deleted():
            return (await by(etcd, None).get("acme")).in_effect.deleted

        await until(deleted)
        assert "bob" == (await by(etcd, None).history("acme")).entries[0].by
    finally:
        await other.close()


class TestCombinedChanges:
    """Changes that the leader reconciles together have no known author."""

    async def test_concurrent_changes_are_never_credited_wrongly(self, etcd, leader):
        await by(etcd, "ann").change("acme", {"qps": 100})
        await asyncio.gather(by(etcd, "ann").change("acme", {"qps": 1}), by(etcd, "bob").change("acme", {"burst": 7}))
        entries = (await by(etcd, None).history("acme")).entries
        last = {(entry.by, *sorted(entry.changes)) for entry in entries[:-1]}
        assert last in (
            {(None, "burst", "groups", "qps", "weight")},
            {("ann", "groups", "qps", "weight"), ("bob", "burst")},
            {(None, "groups", "qps", "weight"), ("bob", "burst")},
            {("ann", "groups", "qps", "weight"), (None, "burst")},
        )

    async def test_changes_of_several_authors_before_a_new_leader_have_none(self, etcd):
        """Fault 6: the leader is dead, and its lease hasn't ended."""
        await by(etcd, "ann", timeout_s=0.02).change("acme", {"qps": 100})
        await etcd.put(names.key("online", "leader"), b"{}")
        await by(etcd, "ann", timeout_s=0.02).change("acme", {"qps": 1})
        await by(etcd, "bob", timeout_s=0.02).change("acme", {"burst": 7})
        await by(etcd, "bob", timeout_s=0.02).change("other", {"qps": 1})
        await by(etcd, "ann", timeout_s=0.02).change("other", {"qps": 2})
        await by(etcd, "ann", timeout_s=0.02).change("mine", {"qps": 2})
        await etcd.delete(names.key("online", "leader"))
        controller = TopicController(etcd.peer(), "online", CLUSTER_CONFIG, "n1")
        await controller.start()
        try:

            async def all_accepted():
                return all(status.is_accepted for status in await by(etcd, None).all())

            await until(all_accepted)
            authors = [(await by(etcd, None).history(project)).entries[0].by for project in ("acme", "other", "mine")]
            assert [None, None, "ann"] == authors
            await by(etcd, "bob").change("acme", {"burst": 8})
            assert "bob" == (await by(etcd, None).history("acme")).entries[0].by
        finally:
            await controller.close()

    async def test_author_is_not_credited_with_an_unaccepted_change(self, etcd):
        """The leader died before it accepted ann's change, and no node leads as bob makes his."""
        await by(etcd, "ann", timeout_s=0.02).change("acme", {"qps": 100})
        await etcd.put(names.key("online", "leader"), b"{}")
        await by(etcd, "ann", timeout_s=0.02).change("acme", {"qps": 1})
        await etcd.delete(names.key("online", "leader"))
        await by(etcd, "bob", timeout_s=0.02).change("acme", {"burst": 7})
        last, first = (await by(etcd, None).history("acme")).entries
        assert (None, {"qps", "burst"}, "ann") == (last.by, last.changes.keys() & {"qps", "burst"}, first.by)
        await by(etcd, "bob", timeout_s=0.02).change("acme", {"burst": 8})
        assert "bob" == (await by(etcd, None).history("acme")).entries[0].by

    async def test_author_of_the_repair_of_an_invalid_spec_is_named(self, etcd, leader):
        await by(etcd, "ann").change("acme", {"qps": 1})
        await etcd.put(names.key("online", "topics", "acme"), b'{"qps": -1}')
        await until(lambda: leader.alarms)
        await by(etcd, "bob").change("acme", {"qps": 2})
        assert ["bob", "ann"] == [entry.by for entry in (await by(etcd, None).history("acme")).entries]


async def test_removal_of_a_deleted_topic_has_an_entry(etcd, leader):
    await by(etcd, "ann").change("acme", {"qps": 1})
    await by(etcd, "ann").delete("acme", via="topics delete")
    assert await leader.remove_groups("acme", {0})
    entries = (await by(etcd, None).history("acme")).entries
    assert ({"deleted": (True, None)}, None) == (entries[0].changes, entries[0].by)
    assert await etcd.get(names.key("online", "accepted", "acme")) is None


async def test_history_is_bounded(etcd):
    topic_client = by(etcd, "ann")
    for qps in range(1, 72):
        await topic_client.change("acme", {"qps": qps})
    entries = (await topic_client.history("acme")).entries
    assert [*range(70, 20, -1)] == [entry.number for entry in entries]
    assert KEPT == len(entries)
    assert KEPT == len((await etcd.list(names.key("online", "history", "acme", ""))).items)


class TestRecreatedTopic:
    """Its numbers continue, so that the oldest entries are dropped first."""

    async def test_continues_its_numbers_under_a_leader(self, etcd, leader):
        ann = by(etcd, "ann")
        for qps in range(1, 61):
            await ann.change("acme", {"qps": qps})
        await ann.delete("acme")
        assert await leader.remove_groups("acme", {0, 1})
        assert 62 == (await ann.change("acme", {"qps": 7})).in_effect.number
        await ann.change("acme", {"qps": 8})
        entries = (await ann.history("acme")).entries
        assert [*range(63, 13, -1)] == [entry.number for entry in entries]
        assert [(True, None), (False, True)] == [entry.changes["deleted"] for entry in entries[2:4]]
        assert (None, 7.0) == entries[1].changes["qps"]

    async def test_continues_its_numbers_without_a_leader(self, etcd):
        ann = by(etcd, "ann")
        for qps in (1, 2):
            await ann.change("acme", {"qps": qps})
        for kind in ("topics", "accepted"):
            await etcd.delete(names.key("online", kind, "acme"))
        assert 2 == (await ann.change("acme", {"qps": 3})).in_effect.number
        assert [2, 1, 0] == [entry.number for entry in (await ann.history("acme")).entries]
        assert 0 == (await ann.change("acme2", {"qps": 3})).in_effect.number

    @pytest.mark.usefixtures("leader")
    async def test_history_is_read_only_for_a_new_topic(self, etcd, client):
        client.listed.clear()
        for qps in (1, 2, 3):
            await by(etcd, "ann").change("acme", {"qps": qps})
        await by(etcd, "ann").delete("acme")
        assert [names.key("online", "history", "acme", "")] == client.listed

    async def test_numbers_of_thousands_of_projects_need_few_reads(self, client):
        """E2: only a batch in which a project has a history is read one by one."""
        await client.put(names.key("online", "history", "p77", 0), OLD % 0)
        await client.put(names.key("online", "history", "p77", 1), OLD % 1)
        assert {"p77": 2} == await next_numbers(client, "online", [f"p{n}" for n in range(3_000)])
        assert 0 < len(client.listed) <= 50

    @pytest.mark.parametrize(
        ("slot", "value"),
        [
            ("3", b"rubbish"),
            ("x", OLD % 53),
            ("3", OLD % 54),
            ("49", OLD % -1),
            ("3", OLD % 9_007_199_254_740_953),
        ],
    )
    def test_invalid_entry_does_not_count(self, slot, value):
        """Otherwise the leader could accept a topic under a number that nodes refuse."""
        item = KeyValue(f"/evenlane/online/history/acme/{slot}", value, 1, 7, 0)
        assert None is next_number("online", "acme", [item])

    def test_highest_number_counts_whatever_its_revision(self):
        """An entry that was repaired by hand may have the newest revision."""
        items = [KeyValue(f"/evenlane/online/history/acme/{n % 50}", OLD % n, 1, 99 - n, 0) for n in (53, 60, 54)]
        assert 61 == next_number("online", "acme", items)


async def test_unknown_project_has_no_history(etcd):
    with pytest.raises(UnknownProject):
        await by(etcd, None).history("nobody")
    await etcd.put(names.key("online", "topics", "acme"), b"{}")
    assert [] == (await by(etcd, None).history("acme")).entries
