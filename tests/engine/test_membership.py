"""Membership on etcd in memory: who owns what when, and what becomes of lost answers and values that are none."""

import asyncio

import pytest
from structlog.testing import capture_logs

from ring.member import Phase
from ring.records import OwnerRecord, decode
from tests.engine.cluster import key
from tests.wait import until


class TestOwning:
    async def test_a_plan_is_carried_out_and_confirmed(self, cluster):
        """P3."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        assert {0: "a", 1: "a", 2: "b"} == await cluster.owners()
        await until(lambda: a.carried_out and b.carried_out)
        assert ([(2, 1)], [(1, 1)]) == (a.carried_out, b.carried_out)

        async def done():
            return [(await cluster.client.get(key("done", name))) for name in "ab"]

        await until(lambda: _all(done()))

    async def test_the_epoch_stands_in_the_owner_key(self, cluster):
        """O: surfaces.md, for whoever reads it."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        await until(lambda: _epoch(cluster, 0))
        assert a.hands.open_now[0] == await _epoch(cluster, 0)
        assert (await cluster.client.get(key("owners", 0))).create_revision == await _epoch(cluster, 0)

    async def test_even_if_etcd_was_away_when_it_was_to_be_written(self, cluster):
        a = await cluster.join("a")
        await cluster.own(a=[0])
        a.client.cut()
        await until(lambda: a.membership._untold == {})
        a.client.heal()
        await until(lambda: _epoch(cluster, 0))

    async def test_the_old_owners_key_goes_before_the_new_ones_comes(self, cluster):
        """Z1: and the new one opens after the old one has stopped and settled."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        before = len(cluster.told("owners"))
        await cluster.own(a=[0], b=[1, 2])
        changes = [kind for kind, name, _ in cluster.told("owners")[before:] if name == "1"]
        assert ["delete", "put"] == changes[:2]
        assert [("stop", 1), ("hand over", 1)] == a.hands.calls[-2:]
        assert ("open", 1) == b.hands.calls[-1]

    async def test_the_node_knows_of_what_comes_from_the_plan_on(self, cluster):
        """Z6: partitions that another node still serves count, so that no backlog gets in their way."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2])
        assert (False, False) == (a.hands.expects_more, b.hands.expects_more)
        b.hands.opening.clear()
        await cluster.plan(a=[0], b=[1, 2])
        await until(lambda: ("open", 1) in b.hands.calls)
        assert (False, True) == (a.hands.expects_more, b.hands.expects_more)
        b.hands.opening.set()
        await until(lambda: not b.hands.expects_more)
        assert {1, 2} == set(b.hands.open_now)

    async def test_nobody_waits_for_a_clock(self, cluster):
        """Z1: as long as the old one hasn't released, the new one doesn't own, however long it takes."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0], b=[])
        a.client.cut()
        await cluster.plan(a=[], b=[0])
        await until(lambda: b.membership.phase is Phase.WAITING)
        cluster.client.advance(59)
        for _ in range(50):
            await asyncio.sleep(0)
        assert [] == b.owned
        cluster.client.advance(1)  # the lease of both; b's membership isn't told of its own
        await until(lambda: 0 in b.membership.member._parts or 0 not in b.membership.member._owners)

    async def test_swapped_partitions_come_to_rest(self, cluster):
        """Z1: each waits for the other, and for nothing more."""
        _, _ = await cluster.join("a", "b")
        await cluster.own(a=[0, 1], b=[2, 3])
        await cluster.own(a=[2, 3], b=[0, 1])
        assert {0: "b", 1: "b", 2: "a", 3: "a"} == await cluster.owners()

    async def test_a_plan_that_is_older_changes_nothing(self, cluster):
        """Z5."""
        a = await cluster.join("a")
        cluster.generation = 5
        await cluster.own(a=[0])
        cluster.generation = 3
        await cluster.plan(a=[1, 2])
        await until(lambda: a.membership.member.stale_plans)
        assert [0] == a.owned

    async def test_many_plans_in_a_row_end_in_the_last(self, cluster):
        """Z5: those between may be passed over, or half carried out."""
        nodes = await cluster.join("a", "b", "c")
        for turn in range(30):
            shifted = {node.name: [p for p in range(4) if (p + turn) % 3 == n] for n, node in enumerate(nodes)}
            await cluster.plan(**shifted)
            for _ in range(turn % 4):
                await asyncio.sleep(0)
        await cluster.own(**shifted)
        assert {p: name for name, mine in shifted.items() for p in mine} == await cluster.owners()


class TestLosing:
    async def test_an_answer_that_is_lost_is_made_good_by_the_watch(self, cluster):
        a = await cluster.join("a")
        a.client.lose = {"plan"}  # what is asked names the plan's revision
        await cluster.own(a=[0, 1])
        assert {0: "a", 1: "a"} == await cluster.owners()

    async def test_a_key_that_is_deleted_by_hand_ends_the_work_and_is_acquired_anew(self, cluster):
        """O."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        epoch = a.hands.open_now[0]
        await cluster.client.delete(key("owners", 0))
        await until(lambda: a.hands.open_now.get(0, epoch) > epoch)
        await until(lambda: ("drop", 0) in a.hands.calls)
        assert [] == a.fatal

    async def test_a_take_over_that_is_not_wanted_any_more_is_given_up(self, cluster):
        a, _ = await cluster.join("a", "b")
        a.hands.opening.clear()
        await cluster.plan(a=[0])
        await until(lambda: ("open", 0) in a.hands.calls)
        await cluster.own(a=[], b=[0])
        assert {} == a.hands.open_now

    async def test_none_begins_after_it_was_stopped(self, cluster):
        """O: the plan changes in the very turn of the loop in which the take-over would go on."""
        a = await cluster.join("a")
        a.client.gates["held"] = asyncio.Event()
        await cluster.plan(a=[0])
        await until(lambda: a.client.waiting)
        await cluster.plan(a=[])
        a.client.gates["held"].set()
        await until(lambda: (0, 2) in a.carried_out)
        assert ("stop", 0) in a.hands.calls
        assert ("open", 0) not in a.hands.calls[a.hands.calls.index(("stop", 0)) :]

    async def test_one_that_is_late_is_refused_when_the_plan_has_changed(self, cluster):
        """Z5: what was asked for by an older plan doesn't stand in the way of the newer one's owner."""
        a, _ = await cluster.join("a", "b")
        a.client.late["owners"] = gate = asyncio.Event()
        await cluster.plan(a=[0])
        await until(lambda: a.membership.member._parts)
        await cluster.plan(a=[])
        await until(lambda: not a.membership.member.wanted)
        gate.set()
        await until(lambda: not a.membership.member.busy)
        assert [] == cluster.told("owners")
        await cluster.own(b=[0])

    async def test_a_lease_that_ends_ends_the_term(self, cluster):
        """O, fault 9."""
        a = await cluster.join("a")
        await cluster.own(a=[0])
        await cluster.client.revoke(a.lease.id)
        await until(lambda: ("drop", 0) in a.hands.calls)
        assert {} == a.hands.open_now
        assert [] == a.fatal
        await until(lambda: a.lost, what="it tries to own it again, and is told")

    async def test_a_dead_nodes_partitions_go_to_others(self, cluster):
        """P4."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0], b=[1])
        await a.crash()
        await cluster.plan(b=[0, 1])
        await until(lambda: [0, 1] == b.owned)


class TestLeaving:
    async def test_one_that_leaves_waits_for_the_plan_and_for_what_runs(self, cluster):
        """P5."""
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0], b=[])
        a.hands.run(0, 5)
        a.leaving = True
        leaving = asyncio.ensure_future(a.membership.leave(30, 30))
        await cluster.plan(a=[], b=[0])
        await until(lambda: [0] == b.owned)
        assert not leaving.done()
        a.hands.end(0, 5)
        assert await leaving

    async def test_without_a_leader_it_releases_by_itself(self, cluster):
        a = await cluster.join("a")
        await cluster.own(a=[0, 1])
        assert await a.membership.leave(0.05, 30)
        assert {} == await cluster.owners()

    async def test_what_hangs_is_not_waited_for_for_ever(self, cluster):
        a = await cluster.join("a")
        await cluster.own(a=[0])
        a.hands.run(0, 5)
        assert not await a.membership.leave(0.05, 0.3)


class TestSpoilt:
    """Issue 4: values that are none are passed over, counted and named in the log."""

    @pytest.mark.parametrize(
        "raw",
        [b"", b"[]", b"\xff\xfe", b'{"generation": "7", "partitions": []}', b"[" * 100_000, b"{" + b" " * (1 << 20)],
        ids=["empty", "a list", "no text", "a wrong type", "deep", "large"],
    )
    async def test_plans(self, cluster, raw):
        a = await cluster.join("a")
        await cluster.own(a=[0])
        with capture_logs() as logs:
            await cluster.client.put(key("plan", "a"), raw)
            await until(lambda: a.membership._records.passed_over == 1)
        assert [True] == [key("plan", "a") in entry["reason"] for entry in logs if "reason" in entry]
        assert [0] == a.owned
        await cluster.own(a=[0, 1])
        assert [] == a.fatal

    async def test_partitions_that_there_are_not(self, cluster):
        a = await cluster.join("a")
        await cluster.plan(a=[-1, 0, 4, 1 << 70])
        await until(lambda: [0] == a.owned)
        assert a.membership.member.done == a.membership.member.generation > 0

    @pytest.mark.parametrize("name", ["x", "-1", "04", "4", "٣", "1/2", "", "9" * 5_000], ids=range(8))
    async def test_owners(self, cluster, name):
        a = await cluster.join("a")
        await cluster.client.put(key("owners", name), b"\xff")
        await cluster.own(a=[0, 1, 2, 3])
        await until(lambda: a.membership._records.passed_over >= 1)
        await cluster.client.delete(key("owners", name))
        await cluster.own(a=[0, 1, 2])

    async def test_an_owner_key_that_was_overwritten_is_again_under_its_owners_lease(self, cluster):
        """Z1: else it would outlive its owner, and the partition would be nobody's for ever."""
        a, _ = await cluster.join("a", "b")
        await cluster.own(a=[0])
        await cluster.client.put(key("owners", 0), b"\xff")
        await until(lambda: _epoch(cluster, 0))
        assert a.lease.id == (await cluster.client.get(key("owners", 0))).lease
        assert [0] == a.owned
        await a.crash()
        await cluster.own(b=[0])

    @pytest.mark.parametrize("raw", [b"", b"[]", b"\xff", b'{"id": 3}', b'{"id": "a", "lanes": {"lanes": {}}}'])
    async def test_what_is_held(self, cluster, raw):
        a, b = await cluster.join("a", "b")
        await cluster.own(a=[0])
        a.hands.run(0, 5)
        await cluster.client.put(key("held", 0, 3), raw)
        await cluster.client.put(key("held", "x", "y"), b"{}")
        await cluster.own(a=[], b=[0])
        assert [[5]] == [record.lanes["lanes"].running for record in b.hands.held[0]]
        await until(lambda: b.membership._records.passed_over >= 1)
        (item,) = [item for item in await cluster.held() if item.key.split("/")[-1] not in ("3", "y")]
        await cluster.client.put(item.key, raw, item.lease)
        a.hands.end(0, 5)
        await until(lambda: b.hands.changed and b.hands.changed[-1].lanes["lanes"].done == [5])
        assert [] == b.fatal


async def _all(found):
    return all(await found)


async def _epoch(cluster, partition):
    item = await cluster.client.get(key("owners", partition))
    try:
        return decode(OwnerRecord, item.key, item.value).epoch
    except ValueError:
        return 0
