"""Who changed what when: entries beside what is accepted, by the leader or by whoever acts in its place."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evenlane.engine.base import names
from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.leader.topic_controller import TopicController
from evenlane.engine.control.topics.client import TopicClient
from evenlane.engine.control.topics.history import (
    KEPT,
    ChangeAuthor,
    author_of,
    author_put,
    changes,
    next_number,
    next_numbers,
    read_history,
)
from evenlane.engine.errors import UnknownProject
from evenlane.quota.topics.topic import accept, complete, parse_spec
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Delete, KeyValue
from tests.support.until import until

CLUSTER_CONFIG = ClusterConfig()
OLD = b'{"number": %d, "revision": 1, "at": "", "by": null, "via": null, "changes": {}}'
DEEP = b'{"changes": ' + b"[" * 100_000


@pytest.fixture
def etcd():
    return MemoryCoordination()


@pytest.fixture
async def leader(etcd):
    made = TopicController(etcd.peer(), "online", CLUSTER_CONFIG, "n1")
    await made.start()
    await asyncio.wait_for(made.leading.wait(), 5)
    yield made
    await made.close()


def by(etcd, who, **tuning):
    return TopicClient(etcd, "online", CLUSTER_CONFIG, who, **tuning)


def accepted(spec, before=None, revision=5):
    return accept(complete(parse_spec(spec), CLUSTER_CONFIG), revision, before)


def summary(entries):
    return [(entry.by, entry.via, entry.changes) for entry in entries]


async def story(etcd):
    """What three people and a stranger do, and what is to be read of it."""
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


async def test_the_leader_writes_who_changed_what(etcd, leader):
    assert await story(etcd) == summary((await by(etcd, None).history("acme")).entries)


async def test_where_nobody_leads_the_command_writes_it_itself(etcd):
    """A wish that says the same again is no change."""
    assert await story(etcd) == summary((await by(etcd, None).history("acme")).entries)


async def test_a_leader_that_comes_later_adds_nothing_to_it(etcd):
    """Survives a change of leader: what is judged anew has not changed."""
    expected = await story(etcd)
    await by(etcd, "ann").change("acme", {"qps": 5})
    before = (await by(etcd, None).history("acme")).entries
    for name in ("n1", "n2"):
        controller = TopicController(etcd.peer(), "online", CLUSTER_CONFIG, name)
        await controller.start()
        await asyncio.wait_for(controller.leading.wait(), 5)
        await by(etcd, "dan").change("other", {"qps": 1})
        await controller.close()
    assert before == (await by(etcd, None).history("acme")).entries
    assert expected == summary(before[1:])


async def test_an_entry_has_the_time_and_the_revision_of_the_wish(etcd, leader):
    topic_client = by(etcd, "ann")
    status = await topic_client.change("acme", {"qps": 1})
    [entry] = (await topic_client.history("acme")).entries
    assert (0, status.revision) == (entry.number, entry.revision)
    assert entry.at.endswith("+00:00")


async def test_without_a_leader_the_revision_is_known_as_well(etcd):
    status = await by(etcd, "ann").change("acme", {"qps": 1})
    assert [status.revision] == [entry.revision for entry in (await by(etcd, None).history("acme")).entries]


async def test_somebody_who_writes_into_etcd_is_unknown(etcd, leader):
    await by(etcd, "ann").change("acme", {"qps": 1})
    await etcd.put(names.key("online", "topics", "acme"), b'{"qps": 2}')

    async def two():
        entries = (await by(etcd, None).history("acme")).entries
        return entries if len(entries) == 2 else None

    assert [None, "ann"] == [entry.by for entry in await until(two)]


async def test_a_deletion_that_no_leader_saw_has_its_author(etcd, leader):
    """Fault 6: it happened between two leaders."""
    made = await by(etcd, "ann").change("acme", {"qps": 1})
    await leader.close()
    await etcd.put(names.key("online", "leader"), b"{}")
    gone = Delete(names.key("online", "topics", "acme"))
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


class TestOvertaken:
    """Of changes that the leader takes together nobody knows who made which part."""

    async def test_two_at_once_are_nobodys(self, etcd, leader):
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

    async def test_what_is_written_while_no_leader_lives_is_nobodys(self, etcd):
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
                return all(status.accepted for status in await by(etcd, None).all())

            await until(all_accepted)
            whose = [(await by(etcd, None).history(project)).entries[0].by for project in ("acme", "other", "mine")]
            assert [None, None, "ann"] == whose
            await by(etcd, "bob", timeout_s=0.02).change("acme", {"burst": 8})
            assert "bob" == (await by(etcd, None).history("acme")).entries[0].by
        finally:
            await controller.close()

    async def test_who_carries_out_what_another_left_is_not_named_for_it(self, etcd):
        """The leader died before it accepted ann's change, and nobody leads as bob makes his."""
        await by(etcd, "ann", timeout_s=0.02).change("acme", {"qps": 100})
        await etcd.put(names.key("online", "leader"), b"{}")
        await by(etcd, "ann", timeout_s=0.02).change("acme", {"qps": 1})
        await etcd.delete(names.key("online", "leader"))
        await by(etcd, "bob", timeout_s=0.02).change("acme", {"burst": 7})
        last, first = (await by(etcd, None).history("acme")).entries
        assert (None, {"qps", "burst"}, "ann") == (last.by, last.changes.keys() & {"qps", "burst"}, first.by)
        await by(etcd, "bob", timeout_s=0.02).change("acme", {"burst": 8})
        assert "bob" == (await by(etcd, None).history("acme")).entries[0].by

    async def test_who_mends_a_bad_wish_is_named(self, etcd, leader):
        await by(etcd, "ann").change("acme", {"qps": 1})
        await etcd.put(names.key("online", "topics", "acme"), b'{"qps": -1}')
        await until(lambda: leader.alarms)
        await by(etcd, "bob").change("acme", {"qps": 2})
        assert ["bob", "ann"] == [entry.by for entry in (await by(etcd, None).history("acme")).entries]


async def test_the_end_of_a_deleted_topic_is_told(etcd, leader):
    await by(etcd, "ann").change("acme", {"qps": 1})
    await by(etcd, "ann").delete("acme", via="topics delete")
    assert await leader.remove_groups("acme", {0})
    entries = (await by(etcd, None).history("acme")).entries
    assert ({"deleted": (True, None)}, None) == (entries[0].changes, entries[0].by)
    assert await etcd.get(names.key("online", "accepted", "acme")) is None


async def test_it_is_bounded(etcd):
    topic_client = by(etcd, "ann")
    for qps in range(1, 72):
        await topic_client.change("acme", {"qps": qps})
    entries = (await topic_client.history("acme")).entries
    assert [*range(70, 20, -1)] == [entry.number for entry in entries]
    assert KEPT == len(entries)
    assert KEPT == len((await etcd.list(names.key("online", "history", "acme", ""))).items)


class TestMadeAnew:
    """A project that was gone goes on behind what it was: the oldest entries go first, as ever."""

    async def test_with_a_leader(self, etcd, leader):
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

    async def test_where_nobody_leads(self, etcd):
        ann = by(etcd, "ann")
        for qps in (1, 2):
            await ann.change("acme", {"qps": qps})
        for kind in ("topics", "accepted"):
            await etcd.delete(names.key("online", kind, "acme"))
        assert 2 == (await ann.change("acme", {"qps": 3})).in_effect.number
        assert [2, 1, 0] == [entry.number for entry in (await ann.history("acme")).entries]
        assert 0 == (await ann.change("acme2", {"qps": 3})).in_effect.number

    async def test_the_history_is_read_only_where_nothing_is_accepted(self, etcd, leader, monkeypatch):
        """A change of a topic costs what it did."""
        listed, asked = leader._coordination.list, []

        async def counted(prefix):
            asked.append(prefix)
            return await listed(prefix)

        monkeypatch.setattr(leader._coordination, "list", counted)
        for qps in (1, 2, 3):
            await by(etcd, "ann").change("acme", {"qps": qps})
        await by(etcd, "ann").delete("acme")
        assert [names.key("online", "history", "acme", "")] == asked

    async def test_of_thousands_at_once_few_are_asked_for_one_by_one(self, etcd, monkeypatch):
        """E2: those among whom somebody has a history."""
        await etcd.put(names.key("online", "history", "p77", 0), OLD % 0)
        await etcd.put(names.key("online", "history", "p77", 1), OLD % 1)
        listed, asked = etcd.list, []

        async def counted(prefix):
            asked.append(prefix)
            return await listed(prefix)

        monkeypatch.setattr(etcd, "list", counted)
        assert {"p77": 2} == await next_numbers(etcd, "online", [f"p{n}" for n in range(3_000)])
        assert 0 < len(asked) <= 50

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
    def test_what_somebody_else_wrote_there_does_not_count(self, slot, value):
        """Else a number that nodes refuse would be accepted."""
        item = KeyValue(f"/evenlane/online/history/acme/{slot}", value, 1, 7, 0)
        assert None is next_number("online", "acme", [item])

    def test_the_highest_number_counts(self):
        """By revision, one that was mended by hand would be the newest."""
        items = [KeyValue(f"/evenlane/online/history/acme/{n % 50}", OLD % n, 1, 99 - n, 0) for n in (53, 60, 54)]
        assert 61 == next_number("online", "acme", items)


async def test_of_an_unknown_project_there_is_none(etcd):
    with pytest.raises(UnknownProject):
        await by(etcd, None).history("nobody")
    await etcd.put(names.key("online", "topics", "acme"), b"{}")
    assert [] == (await by(etcd, None).history("acme")).entries


class TestMistrust:
    """What stands there may have been written by anybody."""

    @pytest.mark.parametrize(
        "value",
        [
            b"",
            b"[]",
            b'{"by": 5}',
            b'{"by": "\xff"}',
            b'{"by": "' + b"x" * 5_000 + b'"}',
            b"[" * 4_000,
            b'{"by": "ann", "replaced": "1"}',
        ],
    )
    def test_of_an_author(self, value):
        assert author_of(KeyValue("k", value, 1, 7, 0), 7) is None

    def test_an_author_counts_for_the_very_wish_that_he_wrote(self):
        found = KeyValue("k", author_put("online", "acme", ChangeAuthor("ann\x1b[2J", "topics set")).value, 1, 7, 0)
        assert "'ann\\x1b[2J'" == author_of(found, 7).by
        assert author_of(found, 8) is None
        assert author_of(None, 7) is None

    def test_a_deletion_that_nobody_saw_is_whose_who_deleted_since(self):
        deletes = KeyValue("k", author_put("online", "acme", ChangeAuthor("ann", "topics delete")).value, 1, 7, 0)
        sets = KeyValue("k", author_put("online", "acme", ChangeAuthor("ann", "topics set")).value, 1, 7, 0)
        assert "ann" == author_of(deletes, 0, 6).by
        assert author_of(deletes, 0, 7) is None
        assert author_of(sets, 0, 6) is None

    @pytest.mark.parametrize("value", [b"", b"{}", b'{"number": 1}', b"\xff", b'{"at": "\xff"}', b"null", DEEP])
    def test_of_an_entry(self, value):
        """F12: what is damaged is named, and nothing of the rest is hidden."""
        spoilt = KeyValue("/evenlane/online/history/acme/3", value, 1, 7, 0)
        good = KeyValue("/evenlane/online/history/acme/2", OLD % 2, 1, 6, 0)
        found = read_history("online", "acme", [good, spoilt])
        assert ([2], [spoilt.key]) == ([entry.number for entry in found.entries], found.damaged)

    def test_of_a_key_that_is_no_entrys(self):
        unroutable = KeyValue("/evenlane/online/history/acme/x", OLD % 2, 1, 7, 0)
        assert ([], [unroutable.key]) == read_history("online", "acme", [unroutable])


@given(st.sampled_from([1, 100, 250]), st.sampled_from([1, 100, 250]), st.booleans(), st.booleans())
def test_changes_are_what_differs(before_qps, after_qps, ordered, deleted):
    before = accepted(b'{"qps": %d}' % before_qps)
    after = replace(
        accepted(b'{"qps": %d, "ordered": %s}' % (after_qps, str(ordered).lower().encode())), deleted=deleted
    )
    found = changes(before, after)
    assert (before_qps != after_qps) == ("qps" in found)
    assert ordered == ("ordered" in found)
    assert deleted == ("deleted" in found)
    assert all(was != now for was, now in found.values())
    assert {} == changes(before, before)


def test_an_entry_stays_small():
    headers = ",".join(f'"A-{n}": "{"x" * 4_000}"' for n in range(15))
    large = b'{"qps": 100, "push": {"url": "http://a", "headers": {%s}}}' % headers.encode()
    found = changes(accepted(b'{"qps": 100}'), accepted(large))
    assert (None, "60,") == (found["push"][0], found["push"][1][:3])
    small = changes(accepted(large), accepted(b'{"qps": 100, "push": {"url": "http://b"}}'))
    assert "http://b" == small["push"][1]["url"]


def test_what_happens_by_itself_is_no_change():
    before = accepted(b'{"qps": 250}')
    after = accepted(b'{"qps": 250}', before, revision=9)
    assert {} == changes(before, after)
    assert {} == changes(before, replace(after, draining=()))
