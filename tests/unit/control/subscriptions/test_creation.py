"""Creation of a subscription: what it writes, what it refuses, and whom it waits for (K10)."""

import asyncio

import pytest
from msgspec.structs import replace

from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.subscriptions.registry import Subscription, registry_key
from evenlane.engine.core.records.settle_record import SettleRecord
from evenlane.engine.errors import ConfigError, EvenlaneError, InvalidName
from evenlane.quota.topics.fields import MOST_SUBSCRIPTIONS
from tests.support.subscription_world import (
    CLUSTER,
    ENV,
    LANES,
    NAME,
    PARTITIONS,
    Life,
    SubscriptionWorld,
)
from tests.support.until import until

LANE, LATER = LaneId("lanes", 1), LaneId("later", 1)


async def refusal(creation, projects=()):
    with pytest.raises(EvenlaneError) as failed:
        await creation.run(projects)
    return str(failed.value)


class TestWhatIsWritten:
    async def test_subscription_begins_after_the_last_message(self, world):
        """K10: it gets nothing that is stored already, but each delayed message."""
        await world.put(LANE, 3)
        await world.put(LATER, 2)
        await world.creation().run(["acme", "shop-*"])
        (first,) = await world.log(LANE, CLUSTER)
        state = await world.shared.state(LANE)
        assert (0, 0, state.created, 3, state.at, 3) == (
            first.epoch, first.number, first.created, first.high, first.high_at, first.watermark,
        )  # fmt: skip
        (first,) = await world.log(LATER, CLUSTER)
        assert (2, 0) == (first.high, first.watermark)
        assert await world.is_complete()
        found = (await world.known())[NAME]
        assert ("active", world.shared.now(), ["acme", "shop-*"]) == (found.state, found.since, found.projects)

    async def test_entry_comes_before_streams_and_is_active_at_the_end(self, world):
        """K10: no step can be seen before the one that it relies on."""
        lease = await world.node("n1")
        await world.own_partition(0, "n1", lease)
        running = asyncio.create_task(world.creation(limit_s=60).run())
        await until(lambda: world.has_own_streams() == {True})
        assert [] == await world.log(LANE, CLUSTER)
        assert "creating" == (await world.known())[NAME].state
        await world.see("n1", lease, await world.revision())
        await running
        assert "active" == (await world.known())[NAME].state

    async def test_log_of_a_partition_with_an_owner_is_left_to_it(self, world):
        """K10: owners write records of version 2 by themselves."""
        lease = await world.node("n1")
        await world.own_partition(0, "n1", lease)
        theirs = SettleRecord(1, 9, 4, "created", 0, 0, 0, b"")
        for kind in ("lanes", "later"):
            await world.append(LaneId(kind, 0), theirs)
        running = asyncio.create_task(world.creation(limit_s=60).run())
        await until(world.revision)
        for kind in ("lanes", "later"):
            await world.append(LaneId(kind, 0), replace(theirs, version=2, number=5))
        await world.see("n1", lease, await world.revision())
        await running
        assert [4, 5] == [each.number for each in await world.log(LaneId("lanes", 0))]
        assert [2] == [each.version for each in await world.log(LaneId("lanes", 1))]

    async def test_repeated_creations_of_others_mark_the_logs_once(self, world):
        """K10: a log whose last record has version 2 gets no other one."""
        await world.creation().run()
        await world.creation("billing").run()
        assert [1] * len(LANES) == [len(await world.log(lane)) for lane in LANES]
        assert {NAME, "billing"} == (await world.known()).keys()


class TestRefusals:
    """K10: each is one sentence, and leaves the registry and the streams as they were."""

    @pytest.mark.parametrize("name", ["au_dit", "", "a" * 65])
    async def test_invalid_name(self, world, name):
        with pytest.raises(InvalidName, match="is not valid: 1 to 64 letters"):
            world.creation(name)

    @pytest.mark.parametrize("pattern", ["", "a.b", "-a", "a" * 65, "ä", "a?"])
    async def test_pattern_that_fits_no_project(self, world, pattern):
        with pytest.raises(ConfigError, match="no project can match the pattern"):
            await world.creation().run([pattern])
        assert not await world.known()

    async def test_more_patterns_than_allowed(self, world):
        assert "--projects: a subscription has at most 100 patterns, not 101" == await refusal(
            world.creation(), ["a"] * 101
        )

    async def test_seventeenth(self, world):
        await world.register(**{f"s{number}": Subscription(state="active") for number in range(MOST_SUBSCRIPTIONS)})
        before = await world.revision()
        assert await refusal(world.creation()) == (
            "environment 'online' has 16 subscriptions, and can't have more:"
            " `evenlane subscriptions list --env online` lists them"
        )
        assert (before, {False}) == (await world.revision(), world.has_own_streams())

    async def test_one_that_exists(self, world):
        await world.creation().run()
        assert "environment 'online' already has a subscription 'audit'" == await refusal(world.creation())

    async def test_one_that_is_being_deleted(self, world):
        await world.set_state("deleting")
        assert await refusal(world.creation()) == (
            "subscription 'audit' of environment 'online' is being deleted:"
            " `evenlane subscriptions delete audit --env online` completes that"
        )

    async def test_environment_with_max_queue_backlog(self):
        world = SubscriptionWorld(max_queue_backlog=100)
        await world.open()
        assert await refusal(world.creation()) == (
            "environment 'online' has a max_queue_backlog, so it can't have subscriptions: NATS would refuse puts"
            " because of messages that only a subscription still needs"
        )
        assert not await world.known()
        await world.close()

    @pytest.mark.parametrize("cluster", [ENV, "online_billing"])
    async def test_living_nodes_of_an_older_release(self, world, cluster):
        await world.register(billing=Subscription(state="active"))
        await world.node("n1")
        await world.node("old-1", {}, cluster)
        await world.node("old-2", {"settle_log": 1}, cluster)
        before = await world.revision()
        assert await refusal(world.creation()) == (
            "nodes old-1, old-2 of environment 'online' run older releases, which would remove messages that a"
            " subscription still needs: update all nodes first"
        )
        assert (before, {False}) == (await world.revision(), world.has_own_streams())

    async def test_registry_that_cant_be_read(self, world):
        await world.etcd.put(registry_key(ENV), b"{")
        assert (await refusal(world.creation())).startswith(
            "the subscriptions in etcd can't be read: /evenlane/online/subscriptions is not valid: "
        )

    async def test_other_projects_than_those_of_the_creation_that_goes_on(self, world):
        await world.register(audit=Subscription(state="creating", since=5, projects=["acme"]))
        assert await refusal(world.creation(), ["shop"]) == (
            "subscription 'audit' of environment 'online' is being created for acme: repeat that without --projects,"
            " or delete it first: `evenlane subscriptions delete audit --env online`"
        )


class TestOwners:
    """K10: removal by an older registry is over before a subscription begins."""

    async def late(self, world):
        said = await refusal(world.creation())
        assert "creating" == (await world.known())[NAME].state
        assert [] == await world.log(LANE, CLUSTER)
        return said

    async def test_owner_that_says_nothing(self, world):
        await world.own_partition(1, "n1", await world.node("n1"))
        assert await self.late(world) == (
            "subscription 'audit' of environment 'online' isn't created yet: node n1 hasn't acknowledged it within"
            " 0 s; until then no message is removed from the streams, and `evenlane subscriptions create audit --env"
            " online` resumes the creation"
        )

    async def test_owners_that_have_seen_an_older_registry(self, world):
        revision = await world.register(billing=Subscription(state="active"))
        for partition, node in enumerate(("n1", "n2")):
            lease = await world.node(node)
            await world.own_partition(partition, node, lease)
            await world.see(node, lease, revision)
        assert "nodes n1, n2 haven't acknowledged it" in await self.late(world)

    async def test_word_of_another_process_with_the_same_id(self, world):
        """The lease tells them apart."""
        await world.own_partition(1, "n1", await world.node("n1"))
        await world.register(audit=Subscription(state="creating", since=5))
        await world.see("n1", await world.etcd.grant(10), 1_000_000)
        assert "node n1 hasn't acknowledged it" in await self.late(world)

    async def test_owner_key_that_cant_be_read(self, world):
        await world.etcd.put("/evenlane/online/owners/1", b"{")
        assert "isn't created yet: the owner of 1 partition (1) hasn't acknowledged" in await self.late(world)

    async def test_owner_whose_lease_ends_is_waited_for_no_longer(self, world):
        lease = await world.node("n1")
        await world.own_partition(1, "n1", lease)
        await self.late(world)
        await world.etcd.revoke(lease)
        await world.creation().run()
        assert await world.is_complete()

    async def test_owner_that_has_claimed_after_the_entry(self, world):
        """It has compared the registry in its transaction. But it may end before it has written anything, and then an
        owner of an older release would read nothing of the registry: its logs are waited for.
        """
        await world.register(audit=Subscription(state="creating", since=5))
        await world.own_partition(1, "n1", await world.node("n1"))
        assert "the owner of 1 partition (1) hasn't acknowledged it within 0 s" in await refusal(world.creation())
        await world.write_as_owner()
        await world.creation().run()
        found = (await world.known())[NAME]
        assert ("active", 5) == (found.state, found.since)

    async def test_owner_that_has_seen_it(self, world):
        lease = await world.node("n1")
        await world.own_partition(1, "n1", lease)
        revision = await world.register(audit=Subscription(state="creating", since=5, projects=["acme"]))
        await world.see("n1", lease, revision)
        await world.creation().run(["acme"])
        assert ("active", ["acme"]) == ((found := (await world.known())[NAME]).state, found.projects)

    async def test_keys_that_name_no_partition_are_skipped(self, world):
        lease = await world.node("n1")
        for name in (PARTITIONS, "x", "01"):
            await world.own_partition(name, "n1", lease)
        await world.creation().run()
        assert await world.is_complete()


class TestOlderNode:
    """K10: a node of an older release that joins while a subscription is created."""

    async def test_creation_is_taken_back(self, world):
        lease = await world.node("n1")
        await world.own_partition(0, "n1", lease)
        before = await world.keys()
        running = asyncio.create_task(refusal(world.creation(limit_s=60)))
        await until(lambda: world.has_own_streams() == {True})
        old = await world.node("old", {})
        assert (await running).startswith("node old of environment 'online' runs an older release, which would remove")
        await world.etcd.revoke(old)
        assert (before, {False}) == (await world.keys(), world.has_own_streams())

    async def test_creation_that_another_call_began_is_left(self, world):
        await world.own_partition(0, "n1", await world.node("n1"))
        await world.register(audit=Subscription(state="creating", since=5))

        class Late(Life):
            """An old node joins once the streams are there."""

            async def spend(self, carry_out):
                answer = await carry_out()
                if world.has_own_streams() == {True} and not any("nodes/old" in key for key in await world.keys()):
                    await world.node("old", {})
                return answer

        said = await refusal(world.creation(life=Late(0)))
        assert said.endswith(
            "update all nodes first; then `evenlane subscriptions create audit --env online` resumes the creation"
        )
        assert "creating" == (await world.known())[NAME].state
