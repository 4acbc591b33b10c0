"""A partition is taken over after a reset of its subscription: its lanes begin where the reset says (K10)."""

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base.names import LaneId, stream
from evenlane.engine.core.message.handler_exceptions import Retry
from evenlane.engine.core.queue.subscription_filter import SubscriptionFilter
from evenlane.engine.node.settle.settle_log_reader import read_settle_log
from tests.support.node.two import P
from tests.support.node.world import is_durable, turns
from tests.support.until import until
from tests.unit.node.partitions.test_order_handoff import Keys

LANE = LaneId("lanes", P)


class Kept(Keys):
    """Nothing is removed from the streams, as another subscription needs it."""

    async def bare(self, name="a", **options):
        return await super().bare(name, **{"purge_interval": 3_600, **options})


@pytest.fixture
async def world():
    async with Kept() as made:
        yield made


def reset(world, since=0, later=0):
    """What a node knows of its subscription once it is reset to this time."""
    return SubscriptionFilter(since=since, reset=world.store.now() + later)


def times(world):
    return [each.at for each in world.server.messages(stream("online", LANE))]


async def handled(world, *ids):
    await until(lambda: sorted(world.ids) == sorted(ids), what=f"{ids} to be handled")


async def test_lane_begins_with_the_first_message_since_then(world):
    """K10: the log says so from its first record on, and the lane isn't begun again by the next owner."""
    ids = [await world.put() for _ in range(4)]
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await handled(world, *ids)
    await until(lambda: is_durable(a))
    await world.released(a, 1)
    chosen = reset(world, times(world)[2])
    b = await world.bare("b", chosen=chosen)
    with capture_logs() as logs:
        await b.owned.open(P, 2)
    found = [each for each in logs if each["event"] == "the subscription was reset: the lane begins again"]
    assert {("lanes", 3), ("later", 1)} == {(each["kind"], each["first"]) for each in found}
    await handled(world, *ids, *ids[2:])
    assert chosen.reset == (await read_settle_log(world.store, LANE)).state.reset
    await until(lambda: is_durable(b))
    b.owned.stop_partition(P)
    await b.owned.hand_off(P, 2, 0.05)
    c = await world.bare("c", chosen=chosen)
    await c.owned.open(P, 3)
    after = await world.put()
    await handled(world, *ids, *ids[2:], after)


async def test_later_reset_counts_again(world):
    """K10: each has a time of its own."""
    one = await world.put()
    for epoch in (1, 2, 3):
        node = await world.bare(f"n{epoch}", chosen=reset(world, later=epoch))
        await node.owned.open(P, epoch)
        await handled(world, *[one] * epoch)
        await until(lambda node=node: is_durable(node))
        node.owned.stop_partition(P)
        await node.owned.hand_off(P, epoch, 0.05)


async def test_attempts_begin_again():
    """K2, K10: the log's marks are of before."""
    async with Kept(max_attempts=2) as world:
        first = await world.key("k")
        world.slow, world.error = {("a", first)}, Retry(after=3_600)
        world.gate.set()
        a = await world.bare("a")
        await a.owned.open(P, 1)
        await until(lambda: a.counters.failed == 1 and is_durable(a))
        await world.released(a, 1)
        b = await world.bare("b", chosen=reset(world))
        await b.owned.open(P, 2)
        await handled(world, first)
        assert [1] == [message.attempt for message in world.handled]


async def test_message_that_runs_is_handled_again_when_it_has_ended(world):
    """K6, K10: until then its key waits. Others run."""
    first = await world.key("k")
    world.slow = {("a", first)}
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: ("a", first) in world.begun)
    second = await world.key("k")
    await world.released(a, 1)
    b = await world.bare("b", chosen=reset(world))
    await world.take_over(b)
    other = await world.key("other")
    await until(lambda: ("b", other) in world.begun)
    await turns(50)
    assert [("b", other)] == [each for each in world.begun if each[0] == "b"]
    world.gate.set()
    await until(lambda: not world.record().is_running)
    world.pass_on(b)
    await until(lambda: ("b", second) in world.begun)
    assert [("b", other), ("b", first), ("b", second)] == [each for each in world.begun if each[0] == "b"]


async def test_failure_of_before_counts_for_nothing(world):
    """K2, K10: the message is handed out at once, in its first attempt."""
    first = await world.key("k")
    world.slow, world.error = {("a", first)}, Retry(after=3_600)
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: ("a", first) in world.begun)
    await world.released(a, 1)
    b = await world.bare("b", chosen=reset(world))
    await world.take_over(b)
    world.gate.set()
    await until(lambda: not world.record().is_running)
    world.pass_on(b)
    await handled(world, first)
    assert [1] == [message.attempt for message in world.handled]


async def test_result_since_the_reset_counts(world):
    """K10: a partition that moves once more settles what its last owner has handled."""
    first = await world.key("k")
    chosen = reset(world)
    world.slow = {("a", first)}
    a = await world.bare("a", chosen=chosen)
    await a.owned.open(P, 1)
    await until(lambda: ("a", first) in world.begun)
    await world.released(a, 1)
    b = await world.bare("b", chosen=chosen)
    await world.take_over(b)
    world.gate.set()
    await until(lambda: not world.record().is_running)
    world.pass_on(b)
    second = await world.key("k")
    await handled(world, first, second)
    assert [("a", first), ("b", second)] == world.begun


async def test_earlier_messages_of_the_key_come_first(world):
    """K6, K10: they had been handled, and the one that runs at the reset is handled again after them."""
    first = await world.key("k")
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await handled(world, first)
    await until(lambda: is_durable(a))
    world.slow = {("a", "second")}
    second = await world.key("k", id="second")
    await until(lambda: ("a", second) in world.begun)
    third = await world.key("k")
    await world.released(a, 1)
    b = await world.bare("b", chosen=reset(world))
    await world.take_over(b)
    await turns(50)
    world.gate.set()
    await until(lambda: not world.record().is_running)
    world.pass_on(b)
    await until(lambda: ("b", third) in world.begun)
    assert [("b", first), ("b", second), ("b", third)] == [each for each in world.begun if each[0] == "b"]
