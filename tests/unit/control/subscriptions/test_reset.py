"""Reset of a subscription: what it writes, what it counts and refuses, and whom it waits for (K10)."""

import asyncio
import itertools

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.cluster.subscriptions.registry import Subscription
from evenlane.engine.control.subscriptions.start_point import StartPoint
from evenlane.engine.core.ports import LaneState
from evenlane.engine.errors import EvenlaneError
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.subscription_world import CLUSTER, ENV, NAME, Died, Life, SubscriptionWorld
from tests.support.until import until

LANE, LATER = LaneId("lanes", 1), LaneId("later", 1)
FIRST, NEW = StartPoint("first", 0), StartPoint("new", None)
_HOUR = 3_600 * 10**9


@pytest.fixture
async def created(world):
    await world.creation().run()
    return world


async def refusal(reset, start=FIRST):
    with pytest.raises(EvenlaneError) as failed:
        await reset.run(start)
    return str(failed.value)


async def entry(world):
    return (await world.known())[NAME]


async def at(world, sequence):
    return world.server.messages(names.stream(ENV, LANE))[sequence - 1].at


class TestRegistry:
    async def test_it_says_when_and_to_which_time(self, created):
        """K10: the settle logs are left to the owners."""
        since = (await entry(created)).since
        logs = await created.log(LANE, CLUSTER)
        await created.reset().run(StartPoint("2h", 7))
        found = await entry(created)
        now = created.shared.now()
        assert ("active", since, now, 7, "2h") == (
            found.state, found.since, found.reset, found.start, found.start_text
        )  # fmt: skip
        assert (7, now) == (found.filter.since, found.filter.reset)
        assert logs == await created.log(LANE, CLUSTER)

    async def test_new_is_the_time_of_the_reset(self, created):
        await created.reset().run(NEW)
        found = await entry(created)
        assert found.start == found.reset == created.shared.now()

    async def test_each_reset_is_later_than_the_one_before(self, created):
        """K10: by whichever clock; two can't be taken for one."""
        for number in range(3):
            await created.reset().run(FIRST)
            assert created.shared.now() + number == (await entry(created)).reset

    async def test_reset_of_one_that_etcd_had_lost(self, created):
        """F2, K10: it gets delayed messages from the time of the reset on, not all."""
        await created.lose_registry()
        await created.creation().run()
        assert 0 == (await entry(created)).due_from
        await created.reset().run(StartPoint("2h", 7))
        assert 7 == (await entry(created)).due_from

    @pytest.mark.parametrize("after", [False, True])
    async def test_death_at_any_request(self, after):
        """K10: a reset that ends anywhere has taken effect, or not at all; it can be repeated."""
        for most in itertools.count(1):
            world = SubscriptionWorld()
            await world.open()
            await world.put(LANE, 3)
            await world.creation().run()
            try:
                await world.reset(life=Life(most, after=after)).run(FIRST)
            except Died:
                assert (await entry(world)).reset in {0, world.shared.now()}
                await world.reset().run(FIRST)
            else:
                break
            finally:
                assert (await entry(world)).reset
                await world.close()
        assert most > 10


class TestRefusals:
    """K10: one sentence each, and the registry is as before."""

    async def test_one_that_isnt_there(self, world):
        await world.register(billing=Subscription(state="active"))
        there = "environment 'online' has no subscription 'audit': there are billing, and the one without a name"
        assert there == await refusal(world.reset())

    @pytest.mark.parametrize(("state", "verb"), [("creating", "create"), ("deleting", "delete")])
    async def test_one_that_isnt_ready(self, world, state, verb):
        await world.set_state(state)
        before = await world.revision()
        assert await refusal(world.reset()) == (
            f"subscription 'audit' of environment 'online' is being {verb}d: `evenlane subscriptions {verb} audit --env"
            " online` completes that"
        )
        assert before == await world.revision()


class TestOwners:
    async def test_remover_that_follows_an_older_registry_is_waited_for(self, created):
        """L, K10: it may remove by a watermark of before."""
        lease = await created.node("n1")
        await created.own_partition(1, "n1", lease)
        await created.see("n1", lease, await created.revision())
        running = asyncio.create_task(created.reset(limit_s=60).run(FIRST))
        await until(lambda: _is_reset(created))
        assert not running.done()
        await created.see("n1", lease, await created.revision())
        await running

    async def test_remover_that_says_nothing(self, created):
        await created.own_partition(1, "n1", await created.node("n1"))
        await created.set_state("active")
        assert await refusal(created.reset()) == (
            "subscription 'audit' of environment 'online' is reset, but not acknowledged within 0 s by n1:"
            " until then no message that it gets again is removed; `evenlane subscriptions reset audit --to ... --env"
            " online` may be repeated"
        )

    async def test_own_owner_takes_its_partitions_over_again(self, created):
        """K10: its word isn't enough: it must have claimed them since."""
        lease = await created.node("a1", cluster=CLUSTER)
        await created.own_partition(1, "a1", lease, CLUSTER)
        running = asyncio.create_task(created.reset(limit_s=60).run(FIRST))
        await until(lambda: _is_reset(created))
        await created.etcd.delete(names.key(CLUSTER, "owners", 1))
        await created.own_partition(1, "a1", lease, CLUSTER)
        await running

    async def test_own_owner_that_is_stopped(self, created):
        await created.own_partition(1, "a1", await created.node("a1", cluster=CLUSTER), CLUSTER)
        assert await refusal(created.reset()) == (
            "subscription 'audit' of environment 'online' is reset, but not acknowledged within 0 s by a1: the"
            " partitions begin there once their owners answer, or have lost them; `evenlane subscriptions reset audit"
            " --to ... --env online` may be repeated"
        )


async def _is_reset(world):
    return (await entry(world)).reset


class Removing(MemoryStore):
    """A store whose owner, stopped before the reset, removes a message at its end."""

    def __init__(self, world):
        super().__init__(world.server, ENV)
        self._world, self._reads = world, 0

    async def state(self, lane: LaneId) -> LaneState:
        self._reads += lane == LANE and bool((await entry(self._world)).reset)
        if self._reads == 2:
            await self._world.own.purge(LANE, 3)
        return await super().state(lane)


async def test_removal_meanwhile_is_reported(created):
    """K10: the last request of an owner that had been stopped can't be ruled out, but it is noticed."""
    await created.put(LANE, 5)
    created.shared = Removing(created)
    await created.shared.open()
    assert {1} == await created.reset().run(FIRST)
