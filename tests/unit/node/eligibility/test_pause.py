"""`Pause`: a handler stops its topic for a while, and no message pays an attempt for it (E17)."""

import asyncio
from types import SimpleNamespace

import pytest

from evenlane.engine.core.message.handler_exceptions import Pause
from evenlane.engine.core.message.message import batch
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.eligibility import pauses
from evenlane.engine.telemetry.wait_reasons import ReasonContext, sentence
from tests.support.node.keyed import Begun, Held, KeyedWorld, ordered
from tests.support.node.world import topic, turns
from tests.support.until import until


class PauseFirst:
    """An `act` that pauses `times` times for `after_s`, and then succeeds. `at` has the times of all starts."""

    def __init__(self, times, after_s, *ids):
        self.left, self.after_s, self.ids, self.at = times, after_s, ids, []

    async def __call__(self, message):
        self.at.append(asyncio.get_running_loop().time())
        if self.left and (not self.ids or message.id in self.ids):
            self.left -= 1
            raise Pause(self.after_s, "429 Too Many Requests")


@pytest.fixture
async def world():
    async with KeyedWorld(acme=topic(max_attempts=2), bolt=topic()) as made:
        yield made


def withheld(node, project="acme"):
    return node.queues.explain_withheld(project)


async def test_pause_costs_no_attempt(world):
    """E17: not even if it is repeated more often than a message may be attempted. No copy is put either."""
    world.act = PauseFirst(5, 0.01)
    (message_id,) = await world.put_keys([None])
    node = await world.node(world.handle)
    await world.all_gone()
    assert [Begun(message_id, 1)] * 6 == world.begun["acme", 0, "mid", None]
    counted = node.counters
    assert (1, 0, 0, 0) == (counted.handled, counted.failed, counted.retried, counted.dead)
    stats = next(iter(node.queues.all())).stats
    assert (0, 0) == (stats.retried, stats.dead)


async def test_pause_ends_on_time(world):
    """E17: no message of the topic starts before."""
    world.act = act = PauseFirst(1, 0.3)
    await world.put_keys([None])
    node = await world.node(world.handle)
    await until(lambda: withheld(node))
    await world.put_keys([None] * 10, group=3, priority="high")
    await world.all_gone()
    assert act.at[1] - act.at[0] >= 0.3
    assert withheld(node) is None


async def test_pause_stops_only_its_topic(world):
    """E17, E18: messages of other topics are handled, and give no reason to wait."""
    world.act = PauseFirst(1, 3600)
    await world.put_keys([None] * 3)
    node = await world.node(world.handle, concurrency=1)
    await until(lambda: withheld(node))
    others = await world.put_keys([None] * 20, project="bolt")
    await until(lambda: set(others) == set(world.ids))
    assert "endpoint" == withheld(node)
    assert all("endpoint" == node.wait_rules.reason(queue) for queue in node.queues.of_project("acme"))
    assert "it waits for endpoint" != sentence("endpoint", None, ReasonContext("acme", None)), "it has words of its own"
    assert all(node.wait_rules.reason(queue) is None for queue in node.queues.of_project("bolt"))


async def test_pause_leaves_running_handlers_alone(world):
    """E17: they succeed or fail as without it."""
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


async def test_longest_of_several_pauses_counts():
    """E17: the others come from messages that were in flight when the first pause began."""
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


async def test_pause_of_zero_requeues_the_message(world):
    """E17."""
    world.act = PauseFirst(20, 0)
    put = await world.put_keys([None] * 10)
    node = await world.node(world.handle)
    await world.all_gone()
    assert sorted(put) == sorted(world.ids)
    assert {1} == {message.attempt for message in world.handled}
    assert 0 == node.limits.used_bytes


@pytest.mark.parametrize("after", [-1, float("nan"), float("inf"), 367 * 86_400])
def test_pause_rejects_invalid_times(after):
    """E17: it raises one sentence, and doesn't pause for ever."""
    with pytest.raises(ValueError, match="from 0 to a year"):
        Pause(after)


async def test_pause_of_a_batch_costs_no_attempt(world):
    """E17: all of its messages wait."""
    batches = []

    @batch(max=4)
    async def handle(messages):
        batches.append([message.id for message in messages])
        if len(batches) == 1:
            raise Pause(0.05)
        world.handled.extend(messages)

    put = await world.put_keys([None] * 10)
    await world.node(handle, concurrency=1)
    await world.all_gone()
    assert sorted(put) == sorted(world.ids)
    assert sorted(batches[0]) == sorted(batches[1])
    assert {1} == {message.attempt for message in world.handled}


async def test_pause_in_a_thread_costs_no_attempt(world):
    """E17, K9."""
    seen = []

    def handle(message):
        seen.append(message.attempt)
        if len(seen) < 3:
            raise Pause(0.01)

    await world.put_keys([None])
    await world.node(handle)
    await world.all_gone()
    assert [1, 1, 1] == seen


async def test_paused_message_keeps_the_first_place_of_its_key():
    """K6."""
    async with KeyedWorld(acme=ordered()) as world:
        put = await world.put_keys(["k"] * 5)
        others = await world.put_keys(["a", "b"] * 5)
        world.act = PauseFirst(3, 0.02, put[1])
        await world.node(world.handle)
        await world.all_gone()
        world.assert_in_order()
        assert put == world.ids_of("k")
        assert {*put, *others} == set(world.ids)


async def test_message_that_expires_during_a_pause_is_not_handled(world):
    """K5."""
    world.act = PauseFirst(1, 0.2)
    message_id = await world.put(headers={h.EXPIRES: str(world.store.now() + 150_000_000)})
    node = await world.node(world.handle)
    await world.all_gone()
    assert [Begun(message_id, 1)] == world.begun["acme", 0, "mid", None]
    assert 1 == node.counters.expired


async def test_next_node_ignores_the_pause(world):
    """L, D: a pause belongs to its node, and a stop during it loses nothing."""
    world.act = PauseFirst(1, 3600)
    put = await world.put_keys([None] * 5)
    node = await world.node(world.handle, concurrency=1)
    await until(lambda: withheld(node))
    assert await world.stop(node)
    await world.node(world.handle)
    await world.all_gone()
    assert sorted(put) == sorted(world.ids)
    assert {(1, False)} == {(message.attempt, message.is_suspect) for message in world.handled}


async def test_paused_topic_stays_paused_after_a_pause(world):
    """X4."""
    world.act = PauseFirst(1, 0.05)
    await world.put_keys([None] * 3)
    node = await world.node(world.handle, concurrency=1)
    await until(lambda: withheld(node))
    await world.changed(node, state="paused")
    await until(lambda: withheld(node) is None)
    await turns(50)
    assert [] == world.ids
    await world.changed(node)
    await world.all_gone()
    assert 3 == len(world.ids)
