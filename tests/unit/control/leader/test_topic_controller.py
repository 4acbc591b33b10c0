"""Topic controller: valid specs take effect, and invalid ones change nothing and raise an alarm."""

import asyncio

import pytest
from msgspec.structs import replace

from evenlane.engine.control.leader.topic_controller import PAUSE_S
from evenlane.quota.topics.topic import encode
from evenlane.ring.coordination.ports import Unavailable
from tests.support.topic_cases import BAD
from tests.support.until import until
from tests.unit.control.leader.topic_keys import ROOT, accepted, deleted, in_effect, put_spec


class TestReconciling:
    async def test_valid_spec_takes_effect_with_its_revision(self, coordination, controller):
        """X4."""
        first = await put_spec(coordination, "a", b'{"qps": 100}')
        await controller.start()
        before = await in_effect(coordination, "a", 100)
        assert (before.active, before.draining, before.revision) == (2, (), first)
        second = await put_spec(coordination, "a", b'{"qps": 10}')
        after = await in_effect(coordination, "a", 10)
        assert (after.active, after.draining, after.revision) == (1, (1,), second)
        assert {} == controller.alarms

    @pytest.mark.parametrize("raw", [raw for raw, _, _ in BAD[::7]])
    async def test_invalid_spec_changes_nothing_and_raises_an_alarm(self, coordination, controller, raw):
        """Fault row 19: the last valid topic stays in effect, and other topics are unaffected."""
        await put_spec(coordination, "a", b'{"qps": 100}')
        await controller.start()
        good = await in_effect(coordination, "a", 100)
        await put_spec(coordination, "a", raw)
        await until(lambda: controller.alarms)
        assert good == await accepted(coordination, "a")
        assert {"a"} == set(controller.alarms)
        assert controller.refused == 1
        await put_spec(coordination, "b", b'{"qps": 5}')
        await in_effect(coordination, "b", 5)
        await put_spec(coordination, "a", b'{"qps": 7}')
        await in_effect(coordination, "a", 7)
        await until(lambda: not controller.alarms)

    async def test_spec_beyond_cluster_limits_is_rejected(self, coordination, controller):
        await controller.start()
        await put_spec(coordination, "a", b'{"qps": 1000, "groups": 2}')
        await until(lambda: controller.alarms)
        assert controller.alarms["a"].startswith("groups must be at least 7 for 1,000 QPS")
        assert await accepted(coordination, "a") is None

    @pytest.mark.parametrize("name", ["", "a/b", "a b", ".", "*", "x" * 65, "a\n"])
    async def test_spec_with_an_invalid_name_is_rejected(self, coordination, controller, name):
        """Fault row 20."""
        await controller.start()
        await put_spec(coordination, name, b'{"qps": 5}')
        await until(lambda: controller.alarms)
        assert "is not valid" in controller.alarms[name]
        assert () == (await coordination.list(ROOT + "accepted/")).items

    @pytest.mark.parametrize(("state", "after"), [("active", "paused"), ("paused", "paused"), ("draining", "draining")])
    async def test_deleted_topic_is_kept_and_paused_unless_draining(self, coordination, controller, state, after):
        """Fault row 19: the backlog is neither dropped nor handled."""
        await put_spec(coordination, "a", b'{"qps": 100, "state": "%s"}' % state.encode())
        await controller.start()
        before = await in_effect(coordination, "a", 100)
        await coordination.delete(ROOT + "topics/a")
        gone = await deleted(coordination, "a")
        assert (after, False, before.active, 1) == (gone.topic.state, gone.can_take_puts, gone.active, gone.number)
        await put_spec(coordination, "a", b'{"qps": 200}')
        again = await in_effect(coordination, "a", 200)
        assert ("active", False, True, 2) == (again.topic.state, again.deleted, again.can_take_puts, again.number)

    async def test_reconnected_watch_changes_no_accepted_topic(self, coordination, client, controller):
        """Fault 11."""
        await put_spec(coordination, "a", b'{"qps": 100}')
        await put_spec(coordination, "bad", b"{}")
        await controller.start()
        await in_effect(coordination, "a", 100)
        revision = coordination.store.revision
        client.disconnect_watches()
        await put_spec(coordination, "b", b'{"qps": 1}')
        await in_effect(coordination, "b", 1)
        assert coordination.store.revision == revision + 2
        assert controller.refused == 1

    async def test_thousands_of_specs_need_few_writes(self, coordination, controller):
        """E2."""
        for n in range(3_000):
            await put_spec(coordination, f"p{n}", b'{"qps": 5}')
        before = coordination.store.revision
        await controller.start()
        await in_effect(coordination, "p2999", 5)
        assert len((await coordination.list(ROOT + "accepted/")).items) == 3_000
        assert coordination.store.revision - before <= 61

    async def test_late_write_cannot_undo_a_newer_one(self, coordination, client, controller, monkeypatch):
        """Fault 11: the answer to the first write is lost. The leader is the same, so its fence still holds."""
        await put_spec(coordination, "a", b'{"qps": 100}')
        await controller.start()
        await in_effect(coordination, "a", 100)
        txn, late = client.txn, []

        async def lost(*arguments):
            if late:
                return await txn(*arguments)
            late.append(arguments)
            raise Unavailable("no answer")

        monkeypatch.setattr(client, "txn", lost)
        await put_spec(coordination, "a", b'{"qps": 200}')
        await until(lambda: late)
        newest = await put_spec(coordination, "a", b'{"qps": 1}')
        await in_effect(coordination, "a", 1)
        assert not (await coordination.txn(*late[0])).succeeded
        now = await accepted(coordination, "a")
        assert (1, newest) == (now.topic.qps, now.revision)

    async def test_leader_reads_a_foreign_value_and_keeps_leading(self, coordination, controller):
        """The value could be an earlier write of the leader's own that etcd carries out late."""
        await put_spec(coordination, "a", b'{"qps": 100}')
        await controller.start()
        first = await in_effect(coordination, "a", 100)
        epoch = (await coordination.get(ROOT + "leader")).create_revision
        await coordination.put(ROOT + "accepted/a", encode(replace(first, number=6)))
        await put_spec(coordination, "a", b'{"qps": 50}')
        assert 7 == (await in_effect(coordination, "a", 50)).number
        assert epoch == (await coordination.get(ROOT + "leader")).create_revision

    async def test_removed_topic_returns_among_hundreds(self, coordination, controller):
        """Each write is conditional on the last published value, or on its absence."""
        await controller.start()
        for qps in (5, 6, 7):
            for n in range(300):
                await put_spec(coordination, f"p{n}", b'{"qps": %d}' % qps)
            await in_effect(coordination, "p299", qps)
            if qps == 6:
                await coordination.delete(ROOT + "topics/p299")
                await deleted(coordination, "p299")
                assert await controller.remove_groups("p299", {0})
        assert 300 == len((await coordination.list(ROOT + "accepted/")).items)

    async def test_publications_are_spaced(self, coordination, controller):
        """X4: every node reacts to each publication, however fast a topic is edited."""
        await controller.start()
        await controller.leading.wait()
        began = asyncio.get_running_loop().time()
        for qps in range(1, 11):
            await put_spec(coordination, "a", b'{"qps": %d}' % qps)
            await in_effect(coordination, "a", qps)
        assert asyncio.get_running_loop().time() - began >= 9 * PAUSE_S


class TestGroupRemoval:
    async def test_leader_removes_empty_groups_and_topics(self, coordination, controller):
        await controller.start()
        await put_spec(coordination, "a", b'{"qps": 150}')
        await in_effect(coordination, "a", 150)
        await put_spec(coordination, "a", b'{"qps": 100}')
        await in_effect(coordination, "a", 100)
        assert await controller.remove_groups("a", {2})
        assert () == (await accepted(coordination, "a")).draining
        assert not await controller.remove_groups("a", {2})
        await coordination.delete(ROOT + "topics/a")
        await deleted(coordination, "a")
        assert await controller.remove_groups("a", {0, 1})
        assert await accepted(coordination, "a") is None

    async def test_only_the_present_leader_removes_groups(self, coordination, controller):
        """Fault 7."""
        assert not await controller.remove_groups("a", {0})
        await controller.start()
        await put_spec(coordination, "a", b'{"qps": 150}')
        await in_effect(coordination, "a", 150)
        await put_spec(coordination, "a", b'{"qps": 100}')
        await in_effect(coordination, "a", 100)
        leader = await coordination.get(ROOT + "leader")
        await coordination.delete(ROOT + "leader")
        await coordination.put(ROOT + "leader", leader.value)
        assert not await controller.remove_groups("a", {2})
        assert (2,) == (await accepted(coordination, "a")).draining
