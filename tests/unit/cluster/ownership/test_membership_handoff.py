"""What runs on as a partition changes hands, on etcd in memory: what its owners tell one another of it (Z1, D)."""

import asyncio

import pytest

from tests.support.until import until


class TestHolding:
    async def test_the_new_owner_is_told_how_it_ends_and_the_key_is_removed(self, cluster):
        """Z1: what still runs is named under the old one's lease, the last word under none."""
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

    async def test_what_a_dead_owner_held_is_let_go(self, cluster):
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
    async def test_even_if_the_answer_to_the_release_is_lost(self, cluster, watch):
        """Z1: the key may be there all the same, and what it names ends."""
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

    async def test_what_ends_while_the_new_one_opens_is_told_it(self, cluster):
        """Whatever it follows of other partitions at that time."""
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
        await until(lambda: len(b.host.gone) == 2, what="what ran in 0 and 2 to be let go")
        b.host.opening.set()

    async def test_a_last_word_said_before_is_settled_and_removed_too(self, cluster):
        a, _ = await cluster.join("a", "b")
        await cluster.own(a=[0, 1])
        a.host.run(0, 5)
        a.host.run(1).done.append(7)
        await cluster.own(a=[1], b=[0])
        await cluster.own(a=[], b=[0, 1])
        await until(lambda: [name[0] for name in _held_names(cluster)] == ["0"])

    async def test_it_may_come_back_while_it_is_held(self, cluster):
        """The node is then its own former owner."""
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

    async def test_one_that_has_given_it_up_is_told_nothing_more(self, cluster):
        """Z1: the ends are the third owner's to settle."""
        a, b, c = await cluster.join("a", "b", "c")
        await cluster.own(a=[0])
        a.host.run(0, 5)
        await cluster.own(a=[], b=[0])
        await until(lambda: b.host.changed)
        await cluster.own(b=[], c=[0])
        update = len(b.host.changed)
        a.host.end(0, 5)
        await until(lambda: c.host.changed and c.host.changed[-1].lanes["lanes"].done == [5])
        await until(lambda: _no_held(cluster))
        assert update == len(b.host.changed)
        assert [] == b.host.gone

    async def test_one_whose_handler_was_not_started_is_let_go(self, cluster):
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0])
        over = a.host.run(0, 5)
        await cluster.own(a=[], b=[0])
        over.running.discard(5)
        over.on_change()
        await until(lambda: b.host.gone)
        assert [5] == b.host.gone[0].lanes["lanes"].running
        await until(lambda: _no_held(cluster))

    async def test_the_key_stays_until_what_it_says_is_settled(self, cluster):
        """D: else a crash of the new owner would have it handled again."""
        a, b = await cluster.join("a", "b")
        b.host.durable = False
        await cluster.own(a=[0])
        a.host.run(0, 5)
        await cluster.own(a=[], b=[0])
        a.host.end(0, 5)
        await until(lambda: b.host.changed and not b.host.changed[-1].running)
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


async def test_what_etcd_has_lost_is_not_let_go(cluster):
    """F3, D: by the backup nothing is held, and the partition isn't the new owner's: the old one's handler runs on."""
    a, b = await cluster.join("a", "b")
    await cluster.own(a=[0], b=[])
    backup = cluster.client.store.backup()
    a.host.run(0, 5)
    await cluster.own(a=[], b=[0])
    cluster.client.restore(backup)
    await until(lambda: ("drop", 0) in b.host.calls or b.lost)
    assert [] == b.host.gone


async def test_what_has_gone_while_nobody_watched_is_let_go(cluster):
    a, b = await cluster.join("a", "b")
    await cluster.own(a=[0])
    a.host.run(0, 5)
    await cluster.own(a=[], b=[0])
    b.client.cut()
    await a.crash()
    b.client.heal()
    await until(lambda: b.host.gone)
