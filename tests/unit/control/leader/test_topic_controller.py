"""The leader accepts topics: good wishes come into force, bad ones change nothing and raise an alarm."""

import asyncio
import json

import pytest
from msgspec.structs import replace

from evenlane.engine.cluster.cluster_config import ClusterConfig
from evenlane.engine.control.leader.topic_controller import PAUSE_S, TopicController
from evenlane.engine.control.topics.accepted_view import AcceptedView
from evenlane.engine.control.topics.accepted_writer import AcceptedWriter
from evenlane.engine.control.topics.reconcile import TopicReconciler
from evenlane.quota.topics.topic import decode_accepted, encode
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Event, KeyValue, Unavailable
from tests.support.topic_cases import BAD
from tests.support.until import until

ROOT = "/evenlane/online/"


@pytest.fixture
def coordination():
    return MemoryCoordination()


@pytest.fixture
async def controller(coordination):
    made = TopicController(coordination.peer(), "online", ClusterConfig(), "one")
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


async def put_spec(coordination, project, raw):
    return await coordination.put(ROOT + "topics/" + project, raw)


class TestAccepting:
    async def test_a_good_wish_comes_into_force_with_its_revision(self, coordination, controller):
        """X4."""
        first = await put_spec(coordination, "a", b'{"qps": 100}')
        await controller.start()
        before = await in_force(coordination, "a", 100)
        assert (before.active, before.draining, before.revision) == (2, (), first)
        second = await put_spec(coordination, "a", b'{"qps": 10}')
        after = await in_force(coordination, "a", 10)
        assert (after.active, after.draining, after.revision) == (1, (1,), second)
        assert {} == controller.alarms

    @pytest.mark.parametrize("raw", [raw for raw, _, _ in BAD[::7]])
    async def test_a_bad_wish_changes_nothing_and_raises_an_alarm(self, coordination, controller, raw):
        """Fault row 19: the last good one stays, the others notice nothing."""
        await put_spec(coordination, "a", b'{"qps": 100}')
        await controller.start()
        good = await in_force(coordination, "a", 100)
        await put_spec(coordination, "a", raw)
        await until(lambda: controller.alarms)
        assert good == await accepted(coordination, "a")
        assert {"a"} == set(controller.alarms)
        assert controller.refused == 1
        await put_spec(coordination, "b", b'{"qps": 5}')
        await in_force(coordination, "b", 5)
        await put_spec(coordination, "a", b'{"qps": 7}')
        await in_force(coordination, "a", 7)
        await until(lambda: not controller.alarms)

    async def test_a_wish_that_the_cluster_cannot_carry_out(self, coordination, controller):
        await controller.start()
        await put_spec(coordination, "a", b'{"qps": 1000, "groups": 2}')
        await until(lambda: controller.alarms)
        assert controller.alarms["a"].startswith("groups must be at least 7 for 1,000 QPS")
        assert await accepted(coordination, "a") is None

    @pytest.mark.parametrize("name", ["", "a/b", "a b", ".", "*", "x" * 65, "a\n"])
    async def test_a_wish_under_a_bad_name_is_refused(self, coordination, controller, name):
        """Fault row 20."""
        await controller.start()
        await put_spec(coordination, name, b'{"qps": 5}')
        await until(lambda: controller.alarms)
        assert "is not valid" in controller.alarms[name]
        assert () == (await coordination.list(ROOT + "accepted/")).items

    @pytest.mark.parametrize(("state", "after"), [("active", "paused"), ("paused", "paused"), ("draining", "draining")])
    async def test_a_deleted_topic_is_kept_and_is_paused_unless_it_drains(self, coordination, controller, state, after):
        """Fault row 19: nobody's backlog is thrown away, and nothing of it is handled unasked."""
        await put_spec(coordination, "a", b'{"qps": 100, "state": "%s"}' % state.encode())
        await controller.start()
        before = await in_force(coordination, "a", 100)
        await coordination.delete(ROOT + "topics/a")

        async def deleted():
            now = await accepted(coordination, "a")
            return now if now.deleted else None

        gone = await until(deleted)
        assert (after, False, before.active, 1) == (gone.topic.state, gone.takes_puts, gone.active, gone.number)
        await put_spec(coordination, "a", b'{"qps": 200}')
        again = await in_force(coordination, "a", 200)
        assert ("active", False, True, 2) == (again.topic.state, again.deleted, again.takes_puts, again.number)

    async def test_a_lost_connection_changes_nothing_that_stands(self, coordination, controller):
        """Fault 11."""
        await put_spec(coordination, "a", b'{"qps": 100}')
        await put_spec(coordination, "bad", b"{}")
        await controller.start()
        await in_force(coordination, "a", 100)
        revision = coordination.store.revision
        controller._coordination.disconnect_watches()
        await put_spec(coordination, "b", b'{"qps": 1}')
        await in_force(coordination, "b", 1)
        assert coordination.store.revision == revision + 2
        assert controller.refused == 1

    async def test_thousands_are_accepted_in_few_writes(self, coordination, controller):
        """E2."""
        for n in range(3_000):
            await put_spec(coordination, f"p{n}", b'{"qps": 5}')
        before = coordination.store.revision
        await controller.start()
        await in_force(coordination, "p2999", 5)
        assert len((await coordination.list(ROOT + "accepted/")).items) == 3_000
        assert coordination.store.revision - before <= 61

    async def test_an_accepted_value_that_was_damaged_is_written_anew(self, coordination, controller):
        await put_spec(coordination, "a", b'{"qps": 100}')
        await coordination.put(ROOT + "accepted/a", b"rubbish")
        await controller.start()

        async def mended():
            return b"rubbish" != (await coordination.get(ROOT + "accepted/a")).value

        await until(mended)
        await in_force(coordination, "a", 100)

    async def test_a_publication_that_etcd_carries_out_late_undoes_no_newer_one(
        self, coordination, controller, monkeypatch
    ):
        """Fault 11: its answer was lost, the leader is the same, so that the fence still holds."""
        await put_spec(coordination, "a", b'{"qps": 100}')
        await controller.start()
        await in_force(coordination, "a", 100)
        txn, late = controller._coordination.txn, []

        async def lost(*arguments):
            if late:
                return await txn(*arguments)
            late.append(arguments)
            raise Unavailable("no answer")

        monkeypatch.setattr(controller._coordination, "txn", lost)
        await put_spec(coordination, "a", b'{"qps": 200}')
        await until(lambda: late)
        newest = await put_spec(coordination, "a", b'{"qps": 1}')
        await in_force(coordination, "a", 1)
        assert not (await coordination.txn(*late[0])).succeeded
        now = await accepted(coordination, "a")
        assert (1, newest) == (now.topic.qps, now.revision)

    async def test_a_leader_that_finds_something_else_than_it_wrote_begins_anew(self, coordination, controller):
        """As if an earlier write of its own had been carried out only now: it goes on leading and mends it."""
        await put_spec(coordination, "a", b'{"qps": 100}')
        await controller.start()
        first = await in_force(coordination, "a", 100)
        epoch = (await coordination.get(ROOT + "leader")).create_revision
        await coordination.put(ROOT + "accepted/a", encode(replace(first, number=6)))
        await put_spec(coordination, "a", b'{"qps": 50}')
        assert 7 == (await in_force(coordination, "a", 50)).number
        assert epoch == (await coordination.get(ROOT + "leader")).create_revision

    async def test_hundreds_come_and_go_and_come_again(self, coordination, controller):
        """What stands is compared with: it was published, or is gone."""
        await controller.start()
        for qps in (5, 6, 7):
            for n in range(300):
                await put_spec(coordination, f"p{n}", b'{"qps": %d}' % qps)
            await in_force(coordination, "p299", qps)
            if qps == 6:
                await coordination.delete(ROOT + "topics/p299")
                await until(lambda: controller._reconciler.accepted["p299"].deleted)
                assert await controller.remove_groups("p299", {0})
        assert 300 == len((await coordination.list(ROOT + "accepted/")).items)

    async def test_publications_are_apart_from_one_another(self, coordination, controller):
        """X4: every node hears of each, however fast somebody edits."""
        await controller.start()
        await controller.leading.wait()
        began = asyncio.get_running_loop().time()
        for qps in range(1, 11):
            await put_spec(coordination, "a", b'{"qps": %d}' % qps)
            await in_force(coordination, "a", qps)
        assert asyncio.get_running_loop().time() - began >= 9 * PAUSE_S


class TestLeading:
    async def test_the_key_says_who_and_since_when(self, coordination, controller):
        """P4."""
        await controller.start()
        await controller.leading.wait()
        leader = await coordination.get(ROOT + "leader")
        assert {"id", "since"} == set(json.loads(leader.value))
        assert json.loads(leader.value)["id"] == "one"
        assert leader.lease

    async def test_one_leads_and_another_takes_over_when_it_closes(self, coordination, controller):
        """P4."""
        other = TopicController(coordination.peer(), "online", ClusterConfig(), "two")
        await controller.start()
        await controller.leading.wait()
        await other.start()
        await put_spec(coordination, "a", b'{"qps": 100}')
        await in_force(coordination, "a", 100)
        assert not other.leading.is_set()
        await controller.close()
        await other.leading.wait()
        await put_spec(coordination, "a", b'{"qps": 50}')
        await in_force(coordination, "a", 50)
        await other.close()
        assert await coordination.get(ROOT + "leader") is None

    async def test_one_of_many_leads(self, coordination):
        """Fault 18."""
        many = [TopicController(coordination.peer(), "online", ClusterConfig(), f"n{n}") for n in range(20)]
        for each in many:
            await each.start()
        while many:
            await until(lambda: any(each.leading.is_set() for each in many))
            leaders = [each for each in many if each.leading.is_set()]
            assert len(leaders) == 1
            await leaders[0].close()
            many.remove(leaders[0])

    async def test_takes_over_when_the_lease_of_a_dead_one_ends(self, coordination, controller):
        """P4, fault 6."""
        dead = TopicController(coordination.peer(), "online", ClusterConfig(), "dead")
        await dead.start()
        await dead.leading.wait()
        await controller.start()
        dead._coordination.cut()
        coordination.advance(10)
        await controller.leading.wait()
        await put_spec(coordination, "a", b'{"qps": 100}')
        await in_force(coordination, "a", 100)
        await dead.close()

    async def test_a_former_leader_writes_nothing(self, coordination, controller):
        """O, fault 7: both believe that they lead, and etcd refuses the one."""
        await controller.start()
        await controller.leading.wait()
        zombie, leader = controller, await coordination.get(ROOT + "leader")
        await coordination.delete(ROOT + "leader")
        await coordination.put(ROOT + "leader", leader.value)
        changes = TopicReconciler("online", ClusterConfig(), {}).changes(
            [Event("put", KeyValue(ROOT + "topics/a", b'{"qps": 5}', 1, 1, 0))]
        )
        fence = zombie._leadership.fence(leader.create_revision)
        publishing = AcceptedWriter(coordination, "online", fence, AcceptedView("online", ()))
        assert not await publishing.publish(changes)
        assert await accepted(coordination, "a") is None
        await until(lambda: not zombie.leading.is_set())

    async def test_stands_again_after_the_key_was_deleted_by_hand(self, coordination, controller):
        await controller.start()
        await controller.leading.wait()
        first = await coordination.get(ROOT + "leader")
        await coordination.delete(ROOT + "leader")

        async def made_again():
            now = await coordination.get(ROOT + "leader")
            return now is not None and now.create_revision != first.create_revision

        await until(made_again)
        await put_spec(coordination, "a", b'{"qps": 100}')
        await in_force(coordination, "a", 100)

    async def test_goes_on_after_etcd_was_silent(self, coordination, controller):
        await controller.start()
        await controller.leading.wait()
        controller._coordination.cut()
        await put_spec(coordination, "a", b'{"qps": 100}')
        controller._coordination.heal()
        await in_force(coordination, "a", 100)

    async def test_leads_no_longer_than_its_lease_may_last(self, coordination):
        """Fault 10: cut off from etcd, a leader knows by itself when its time is up."""
        short = TopicController(coordination.peer(), "online", ClusterConfig(), "short", lease_ttl_s=1)
        await short.start()
        await short.leading.wait()
        short._coordination.cut()
        await until(lambda: not short.leading.is_set(), timeout=5.0)
        assert await coordination.get(ROOT + "leader") is not None
        await short.close()

    async def test_the_contract_of_its_life(self, controller):
        await controller.close()
        await controller.start()
        await controller.start()
        await controller.close()
        await controller.close()
        assert not controller.leading.is_set()


class TestTakingAway:
    async def test_the_leader_writes_it_under_its_fence(self, coordination, controller):
        await controller.start()
        await put_spec(coordination, "a", b'{"qps": 150}')
        await in_force(coordination, "a", 150)
        await put_spec(coordination, "a", b'{"qps": 100}')
        await in_force(coordination, "a", 100)
        assert await controller.remove_groups("a", {2})
        assert () == (await accepted(coordination, "a")).draining
        assert not await controller.remove_groups("a", {2})
        await coordination.delete(ROOT + "topics/a")
        await until(lambda: controller._reconciler.accepted["a"].deleted)
        assert await controller.remove_groups("a", {0, 1})
        assert await accepted(coordination, "a") is None

    async def test_who_does_not_lead_or_leads_no_more_changes_nothing(self, coordination, controller):
        """Fault 7."""
        assert not await controller.remove_groups("a", {0})
        await controller.start()
        await put_spec(coordination, "a", b'{"qps": 150}')
        await in_force(coordination, "a", 150)
        await put_spec(coordination, "a", b'{"qps": 100}')
        await in_force(coordination, "a", 100)
        leader = await coordination.get(ROOT + "leader")
        await coordination.delete(ROOT + "leader")
        await coordination.put(ROOT + "leader", leader.value)
        assert not await controller.remove_groups("a", {2})
        assert (2,) == (await accepted(coordination, "a")).draining
