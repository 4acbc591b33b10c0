"""`Pause`: a handler wants no more of its topic for a while, and that costs nobody an attempt (E17)."""

import asyncio
from types import SimpleNamespace

import pytest

from evenlane.engine.core.message.message import Pause, batch
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.eligibility import pauses
from evenlane.engine.telemetry.wait_reasons import _SENTENCES
from tests.support.node.keyed import Begun, Held, Keyed, ordered
from tests.support.node.world import topic, turns
from tests.support.until import until


class Once:
    """An `act` that pauses so often, for so long, and then succeeds. `at` are the times of all starts."""

    def __init__(self, times, after_s, *ids):
        self.left, self.after_s, self.ids, self.at = times, after_s, ids, []

    async def __call__(self, message):
        self.at.append(asyncio.get_running_loop().time())
        if self.left and (not self.ids or message.id in self.ids):
            self.left -= 1
            raise Pause(self.after_s, "429 Too Many Requests")


@pytest.fixture
async def world():
    async with Keyed(acme=topic(max_attempts=2), bolt=topic()) as made:
        yield made


def withheld(node, project="acme"):
    return node.queues.withheld(project)


async def test_it_costs_no_attempt(world):
    """E17: not even more often than a message may be attempted; nor does a copy of it come to be."""
    world.act = Once(5, 0.01)
    (own,) = await world.put_keys([None])
    node = await world.node(world.handle)
    await world.all_over()
    assert [Begun(own, 1)] * 6 == world.begun["acme", 0, "mid", None]
    counted = node.counters
    assert (1, 0, 0, 0) == (counted.handled, counted.failed, counted.retried, counted.dead)
    assert 0 == next(iter(node.queues.all())).failed


async def test_it_ends_by_itself_and_not_sooner(world):
    """E17: nothing of the topic starts before."""
    world.act = act = Once(1, 0.3)
    await world.put_keys([None])
    node = await world.node(world.handle)
    await until(lambda: withheld(node))
    await world.put_keys([None] * 10, group=3, priority="high")
    await world.all_over()
    assert act.at[1] - act.at[0] >= 0.3
    assert withheld(node) is None


async def test_only_its_topic_stops(world):
    """E17, E18: others go on as if nothing were."""
    world.act = Once(1, 3600)
    await world.put_keys([None] * 3)
    node = await world.node(world.handle, concurrency=1)
    await until(lambda: withheld(node))
    others = await world.put_keys([None] * 20, project="bolt")
    await until(lambda: set(others) == set(world.ids))
    assert "endpoint" == withheld(node)
    assert all("endpoint" == node.wait_rules.reason(queue) for queue in node.queues.of("acme"))
    assert "endpoint" in _SENTENCES
    assert all(node.wait_rules.reason(queue) is None for queue in node.queues.of("bolt"))


async def test_those_in_flight_go_on(world):
    """E17: they end as they would have ended."""
    first, second, third = await world.put_keys([None] * 3)
    held = Held(first, second)

    async def act(message):
        await held(message)
        if message.id == third:
            raise Pause(3600)
        if message.id == second:
            raise ValueError("no")

    world.act = act
    node = await world.node(world.handle)
    await until(lambda: withheld(node))
    held.go()
    await until(lambda: world.ids == [first] and node.counters.retried == 1)


async def test_the_longest_of_several_pauses_counts(world):
    """E17: whichever comes first."""
    waits = dict(zip(await world.put_keys([None] * 3), [0.01, 3600, 0.02], strict=True))
    wall = asyncio.Barrier(3)

    async def act(message):
        await wall.wait()
        raise Pause(waits[message.id])

    world.act = act
    node = await world.node(world.handle)
    await until(lambda: withheld(node))
    before = len(node.pauses._timers)
    await asyncio.sleep(0.1)
    assert (1, "endpoint") == (before, withheld(node))
    assert 3 == len(world.begun["acme", 0, "mid", None])


async def test_a_longer_one_takes_over_from_a_shorter_one():
    """E17: what comes from a message that was in flight when the first pause began."""
    reported = []
    withhold = lambda project, _reason, on, **_: reported.append((project, on))  # noqa: E731
    found = pauses.TopicPauses(SimpleNamespace(withhold=withhold))
    loop = asyncio.get_running_loop()
    start = loop.time()
    found.begin("a", 0.02, "so")
    found.begin("a", 0.1, "so")
    found.begin("a", 0.05, "so")
    found.begin("b", 0.01, "so")
    await until(lambda: ("b", False) in reported)
    await until(lambda: ("a", False) in reported)
    assert loop.time() - start >= 0.1
    assert [("a", True), ("a", True), ("b", True), ("b", False), ("a", False)] == reported


async def test_no_time_at_all(world):
    """E17: `Pause(0)` puts the message back, no more."""
    world.act = Once(20, 0)
    put = await world.put_keys([None] * 10)
    node = await world.node(world.handle)
    await world.all_over()
    assert sorted(put) == sorted(world.ids)
    assert {1} == {message.attempt for message in world.handled}
    assert 0 == node.limits.held


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), 367 * 86_400])
def test_a_time_that_is_none(after):
    """E17: a sentence, not a pause for ever."""
    with pytest.raises(ValueError, match="from 0 to a year"):
        Pause(after)


async def test_a_batch_that_pauses(world):
    """E17: all of it waits on, none of it counted."""
    batches = []

    @batch(max=4)
    async def handle(messages):
        batches.append([message.id for message in messages])
        if len(batches) == 1:
            raise Pause(0.05)
        world.handled.extend(messages)

    put = await world.put_keys([None] * 10)
    await world.node(handle, concurrency=1)
    await world.all_over()
    assert sorted(put) == sorted(world.ids)
    assert sorted(batches[0]) == sorted(batches[1])
    assert {1} == {message.attempt for message in world.handled}


async def test_a_plain_handler_that_pauses(world):
    """E17, K9: from its thread."""
    seen = []

    def handle(message):
        seen.append(message.attempt)
        if len(seen) < 3:
            raise Pause(0.01)

    await world.put_keys([None])
    await world.node(handle)
    await world.all_over()
    assert [1, 1, 1] == seen


async def test_in_an_ordered_topic_its_key_waits_with_it():
    """Item 4: whoever has paused goes first of its key when the pause is over."""
    async with Keyed(acme=ordered()) as world:
        put = await world.put_keys(["k"] * 5)
        others = await world.put_keys(["a", "b"] * 5)
        world.act = Once(3, 0.02, put[1])
        await world.node(world.handle)
        await world.all_over()
        world.in_order()
        assert put == world.ids_of("k")
        assert {*put, *others} == set(world.ids)


async def test_an_expired_one_is_not_kept_by_it(world):
    """K5: it outlives its time during the pause, and isn't handled after it."""
    world.act = Once(1, 0.2)
    own = await world.put(headers={h.EXPIRES: str(world.store.now() + 150_000_000)})
    node = await world.node(world.handle)
    await world.all_over()
    assert [Begun(own, 1)] == world.begun["acme", 0, "mid", None]
    assert 1 == node.counters.expired


async def test_a_stop_during_it_loses_nothing(world):
    """L, D: the pause is this node's; the next one tries at once."""
    world.act = Once(1, 3600)
    put = await world.put_keys([None] * 5)
    node = await world.node(world.handle, concurrency=1)
    await until(lambda: withheld(node))
    assert await world.stop(node)
    await world.node(world.handle)
    await world.all_over()
    assert sorted(put) == sorted(world.ids)
    assert {(1, False)} == {(message.attempt, message.suspect) for message in world.handled}


async def test_a_paused_topic_stays_paused_after_it(world):
    """X4: what its tenant says counts beside it."""
    world.act = Once(1, 0.05)
    await world.put_keys([None] * 3)
    node = await world.node(world.handle, concurrency=1)
    await until(lambda: withheld(node))
    await world.changed(node, state="paused")
    await until(lambda: withheld(node) is None)
    await turns(50)
    assert [] == world.ids
    await world.changed(node)
    await world.all_over()
    assert 3 == len(world.ids)
