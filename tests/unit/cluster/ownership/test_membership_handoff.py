"""Handlers that still run when a partition changes its owner, on etcd in memory (Z1, D)."""

import asyncio

import pytest

from tests.support.until import until


class TestHandoff:
    async def test_next_owner_learns_each_end_and_deletes_the_key(self, cluster):
        """Z1: a record with running handlers is under the previous owner's lease, the last one under none."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0])
        a.host.run(0, 5, 6)
        await cluster.own(a=[], b=[0])
        (record,) = b.host.held[0]
        assert [5, 6] == record.lanes["lanes"].running
        (item,) = await cluster.held()
        assert a.lease.id == item.lease
        a.host.end(0, 6)
        await until(lambda: b.host.changed and b.host.changed[-1].lanes["lanes"].done == [6])
        a.host.end(0, 5)
        await until(lambda: b.host.changed[-1].lanes["lanes"].done == [5, 6])
        await until(lambda: _no_held(cluster))
        assert ["put", "put", "put", "delete"] == [kind for kind, _, _ in cluster.changes_of("held")]
        assert [a.lease.id, a.lease.id, 0] == [lease for _, _, lease in cluster.changes_of("held")][:3]
        assert [] == b.host.gone

    async def test_running_messages_of_a_dead_owner_are_released(self, cluster):
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0])
        a.host.run(0, 5, 6)
        await cluster.own(a=[], b=[0])
        a.host.end(0, 6)
        await until(lambda: b.host.changed and b.host.changed[-1].lanes["lanes"].done == [6])
        await a.crash()
        await until(lambda: b.host.gone)
        assert [5] == b.host.gone[0].lanes["lanes"].running

    @pytest.mark.parametrize("watch", ["quick", "slow"])
    async def test_end_is_published_although_the_releases_answer_is_lost(self, cluster, watch):
        """Z1: the handoff key exists, and its handlers end."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0])
        a.host.run(0, 5)
        a.client.lose = {"owners"}
        await cluster.plan(a=[], b=[0])
        await until(lambda: [0] == b.owned)
        if watch == "slow":
            a.client.cut()
        a.host.end(0, 5)
        a.client.heal()
        a.client.lose = set()
        await until(lambda: b.host.changed and b.host.changed[-1].lanes["lanes"].done == [5])
        await until(lambda: _no_held(cluster))

    async def test_end_while_the_next_owner_opens_reaches_it(self, cluster):
        """It follows handoffs of another partition at that time."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1, 2])
        for partition in (0, 1, 2):
            a.host.run(partition, 5)
        await cluster.own(a=[1, 2], b=[0])
        b.host.opening.clear()
        await cluster.plan(a=[], b=[0, 1, 2])
        await until(lambda: {("open", 1), ("open", 2)} <= set(b.host.calls))
        a.host.end(1, 5)
        await until(lambda: sum(lease == 0 for _, name, lease in cluster.changes_of("held") if name[0] == "1"))
        b.host.opening.set()
        await until(lambda: [5] in [record.lanes["lanes"].done for record in b.host.changed])
        b.host.opening.clear()
        await a.crash()
        await until(lambda: len(b.host.gone) == 2, what="the running messages of 0 and 2 to be released")
        b.host.opening.set()

    async def test_last_record_from_before_the_takeover_is_deleted(self, cluster):
        a, _ = await cluster.join("a", "b")
        await cluster.own(a=[0, 1])
        a.host.run(0, 5)
        a.host.run(1).done.append(7)
        await cluster.own(a=[1], b=[0])
        await cluster.own(a=[], b=[0, 1])
        await until(lambda: [name[0] for name in _held_names(cluster)] == ["0"])

    async def test_partition_may_return_while_its_handlers_run(self, cluster):
        """The node is then its own previous owner."""
        a, _ = await cluster.join("a", "b")
        await cluster.own(a=[0])
        a.host.run(0, 5)
        await cluster.own(a=[], b=[0])
        over = a.host.runs.pop(0)
        await cluster.own(a=[0], b=[])
        assert [[5]] == [record.lanes["lanes"].running for record in a.host.held[0]]
        a.host.runs[0] = over
        a.host.end(0, 5)
        await until(lambda: a.host.changed and a.host.changed[-1].lanes["lanes"].done == [5])
        await until(lambda: _no_held(cluster))

    async def test_owner_in_between_learns_of_no_further_end(self, cluster):
        """Z1: the third owner settles it."""
        a, b, c = await cluster.join("a", "b", "c")
        await cluster.own(a=[0])
        a.host.run(0, 5)
        await cluster.own(a=[], b=[0])
        await until(lambda: b.host.changed)
        await cluster.own(b=[], c=[0])
        before = len(b.host.changed)
        a.host.end(0, 5)
        await until(lambda: c.host.changed and c.host.changed[-1].lanes["lanes"].done == [5])
        await until(lambda: _no_held(cluster))
        assert before == len(b.host.changed)
        assert [] == b.host.gone

    async def test_message_that_never_started_is_released(self, cluster):
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0])
        over = a.host.run(0, 5)
        await cluster.own(a=[], b=[0])
        over.running.discard(5)
        over.on_change()
        await until(lambda: b.host.gone)
        assert [5] == b.host.gone[0].lanes["lanes"].running
        await until(lambda: _no_held(cluster))

    async def test_key_stays_until_its_messages_are_settled(self, cluster):
        """D: otherwise they would be handled again after a crash of the next owner."""
        a, b = await cluster.join("a", "b")
        b.host.durable = False
        await cluster.own(a=[0])
        a.host.run(0, 5)
        await cluster.own(a=[], b=[0])
        a.host.end(0, 5)
        await until(lambda: b.host.changed and not b.host.changed[-1].is_running)
        await asyncio.sleep(0)
        assert 1 == len(await cluster.held())
        c = await cluster.join("c")
        await cluster.own(b=[], c=[0])
        assert [[5]] == [record.lanes["lanes"].done for record in c.host.held[0]]


def _held_names(cluster):
    there = {name: kind for kind, name, _ in cluster.changes_of("held")}
    return [name for name, kind in there.items() if kind == "put"]


def _no_held(cluster):
    return not _held_names(cluster)


async def test_handoff_lost_by_a_rollback_releases_nothing(cluster):
    """F3, D: the backup has neither the handoff nor the next owner's key, and the handler still runs."""
    a, b = await cluster.join("a", "b")
    await cluster.own(a=[0], b=[])
    backup = cluster.client.store.backup()
    a.host.run(0, 5)
    await cluster.own(a=[], b=[0])
    cluster.client.restore(backup)
    await until(lambda: ("drop", 0) in b.host.calls or b.lost)
    assert [] == b.host.gone


async def test_handoff_that_ends_during_an_outage_is_released(cluster):
    a, b = await cluster.join("a", "b")
    await cluster.own(a=[0])
    a.host.run(0, 5)
    await cluster.own(a=[], b=[0])
    b.client.cut()
    await a.crash()
    b.client.heal()
    await until(lambda: b.host.gone)
