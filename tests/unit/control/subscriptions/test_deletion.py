"""Deletion of a subscription: what it removes, what it refuses, and how it goes on (K10)."""

import asyncio
import itertools

import pytest

from evenlane.engine.base import names
from evenlane.engine.cluster.subscriptions.registry import Subscription, registry_key
from evenlane.engine.errors import EvenlaneError
from tests.support.subscription_world import CLUSTER, ENV, NAME, Died, Life, SubscriptionWorld


async def refusal(deletion):
    with pytest.raises(EvenlaneError) as failed:
        await deletion.run()
    return str(failed.value)


async def test_nothing_of_it_is_left(world):
    """K10: its streams, its keys and its entry go, and the registry with the last entry."""
    before = await world.keys()
    await world.creation().run()
    await world.etcd.put(names.key(CLUSTER, "epochs", 0), b"{}")
    await world.deletion().run()
    assert (before, {False}) == (await world.keys(), world.has_own_streams())


async def test_others_are_left_as_they_are(world):
    """K10: also one whose name begins with this one's."""
    await world.creation().run()
    await world.creation("audit-2").run()
    own = names.key(names.cluster_name(ENV, "audit-2"), "epochs", 0)
    await world.etcd.put(own, b"{}")
    await world.deletion().run()
    assert ["audit-2"] == list(await world.known())
    assert {own, registry_key(ENV)} == {*await world.keys()}
    assert all(world.server.find(each) for each in names.own_streams(names.cluster_name(ENV, "audit-2")))


async def test_many_keys_go(world):
    """K10: more than fit a transaction of etcd."""
    await world.creation().run()
    for partition in range(300):
        await world.etcd.put(names.key(CLUSTER, "epochs", partition), b"{}")
    await world.deletion().run()
    assert [] == await world.keys()


async def test_one_that_isnt_there(world):
    """K10: the sentence lists those that are."""
    there = "environment 'online' has no subscription 'audit': there is only the one without a name"
    assert there == await refusal(world.deletion())
    await world.register(billing=Subscription(state="active"))
    there = "environment 'online' has no subscription 'audit': there are billing, and the one without a name"
    assert there == await refusal(world.deletion())


async def test_living_nodes_refuse_it(world):
    """K10: the sentence names them; nothing is changed."""
    await world.creation().run()
    before = await world.revision()
    one = await world.node("a1", cluster=CLUSTER)
    in_use = "subscription 'audit' of environment 'online' is in use: "
    assert f"{in_use}node a1 works for it: stop it first" == await refusal(world.deletion())
    await world.node("a2", cluster=CLUSTER)
    assert f"{in_use}nodes a1, a2 work for it: stop them first" == await refusal(world.deletion())
    assert (before, {True}) == (await world.revision(), world.has_own_streams())
    await world.etcd.revoke(one)


async def test_owner_keys_refuse_it(world):
    """K10: the process behind them may still work."""
    await world.creation().run()
    await world.own_partition(0, "a1", await world.etcd.grant(10), CLUSTER)
    assert await refusal(world.deletion()) == (
        "subscription 'audit' of environment 'online' is in use: some of its partitions have owners until their leases"
        " have ended: wait for that first"
    )
    world.etcd.advance(11)
    await world.deletion().run()
    assert [] == await world.keys()


class Joining(Life):
    """A node joins right after the entry has the state `deleting`."""

    def __init__(self, world):
        self._world = world

    async def spend(self, carry_out):
        answer = await carry_out()
        known = await self._world.known()
        if known and known[NAME].state == "deleting":
            await self._world.node("a1", cluster=CLUSTER)
        return answer


@pytest.mark.parametrize("state", ["active", "creating"])
async def test_node_that_joins_meanwhile(world, state):
    """K10: the subscription has its state of before, and is whole."""
    await world.creation().run()
    await world.set_state(state)
    said = await refusal(world.deletion(life=Joining(world)))
    assert said.endswith("node a1 works for it: stop it first")
    assert (state, {True}) == ((await world.known())[NAME].state, world.has_own_streams())


async def test_node_of_one_whose_deletion_was_broken_off(world):
    """K10: streams may be gone already, so it stays as it is."""
    await world.creation().run()
    await world.set_state("deleting")
    await world.node("a1", cluster=CLUSTER)
    await refusal(world.deletion())
    assert "deleting" == (await world.known())[NAME].state


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("state", ["active", "creating"])
async def test_death_at_any_request(state, after):
    """K10: repeating the command completes the deletion."""
    for most in itertools.count(1):
        world = SubscriptionWorld()
        await world.open()
        await world.creation().run()
        await world.set_state(state)
        await world.etcd.put(names.key(CLUSTER, "epochs", 0), b"{}")
        try:
            await world.deletion(life=Life(most, after=after)).run()
        except Died:
            if known := await world.known():
                assert known[NAME].state in (state, "deleting")
                await world.deletion().run()
        else:
            break
        finally:
            assert ([], {False}) == (await world.keys(), world.has_own_streams())
            await world.close()
    assert most > 8


async def test_two_deletions_at_once(world):
    """K10: both end, or one says that it is gone."""
    await world.creation().run()
    ends = await asyncio.gather(world.deletion().run(), world.deletion().run(), return_exceptions=True)
    assert None in ends
    assert all(each is None or "has no subscription" in str(each) for each in ends)
    assert ([], {False}) == (await world.keys(), world.has_own_streams())


async def test_name_can_be_used_again(world):
    """K10: the next one of this name begins from scratch."""
    await world.creation().run()
    await world.deletion().run()
    await world.creation().run()
    assert await world.is_complete()
