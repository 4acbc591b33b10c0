"""Failed messages that are dead-lettered, and replayed from there (K4, X5, E13)."""

import pytest

from evenlane.engine.admin.dead_letters.client import DeadLetterClient
from evenlane.engine.base import names
from evenlane.engine.core.message.handler_exceptions import Reject
from tests.support.node.world import CLUSTER_CONFIG, World, change, topic
from tests.support.producer_world import accepted
from tests.support.until import until

FAST = 1e6


class FakeTopicCache:
    """One accepted topic for all projects, with the node's groups."""

    def get(self, project: str):
        return accepted('{"qps": 400, "groups": 10, "spread": 2}')


@pytest.fixture
async def world():
    async with World(acme=topic(max_attempts=2), other=topic()) as made:
        made.dead_letters = DeadLetterClient(made.store, "online", FakeTopicCache(), CLUSTER_CONFIG)
        yield made


async def test_replay_is_the_same_message_in_its_first_attempt(world):
    seen, broken = [], True

    async def handle(message):
        seen.append(message)
        if broken:
            raise ValueError("no such order")

    await world.node(handle)
    await world.put(b"an order", group=3, priority="high", id="o:7", headers={"Evenlane-Key": "k", "traceparent": "t"})
    await until(world.dead)
    await world.all_gone()
    [dead_letter] = await world.dead_letters.oldest("acme", 5)
    assert ("o:7", "failed 2 times", "ValueError: no such order", 2, "k") == (
        dead_letter.id, dead_letter.reason, dead_letter.error, dead_letter.attempts, dead_letter.key,
    )  # fmt: skip
    assert f"{seen[1].stream}:{seen[1].sequence}" == dead_letter.origin
    broken = False
    assert 1 == (await world.dead_letters.replay("acme")).replayed
    await until(lambda: len(seen) == 3)
    first, _, last = seen
    assert 1 == last.attempt
    assert (first.id, first.put_at, first.key, first.headers, first.body, first.group, first.priority) == (
        last.id, last.put_at, last.key, last.headers, last.body, last.group, last.priority,
    )  # fmt: skip
    await world.all_gone()
    assert [] == world.dead()


async def test_failed_replay_is_dead_lettered_again(world):
    """E13: after all of its attempts, and with another message id, so that it isn't taken for a duplicate."""
    attempts = []

    async def handle(message):
        attempts.append(message.attempt)
        raise ValueError

    await world.node(handle)
    await world.put(id="a")
    await until(world.dead)
    assert 1 == (await world.dead_letters.replay("acme")).replayed
    await until(lambda: len(attempts) == 4 and world.dead())
    [dead_letter] = await world.dead_letters.oldest("acme", 5)
    assert (2, "a", [1, 2, 1, 2]) == (dead_letter.sequence, dead_letter.id, attempts)


async def test_replay_keeps_a_generated_id(world):
    ids = []

    async def handle(message):
        ids.append(message.id)
        if len(ids) == 1:
            raise Reject("not now")

    await world.node(handle)
    await world.store.put(names.lane_subject("online", 0, "acme", 0, "mid"), b"", b"")
    await until(world.dead)
    await world.dead_letters.replay("acme")
    await until(lambda: len(ids) == 2)
    assert ids[0] == ids[1]


async def test_replays_are_charged_to_their_own_quota(world):
    """X5: 1,000 replays at once don't delay another project."""
    rejecting = True

    async def handle(message):
        if message.project == "acme" and rejecting:
            raise Reject("broken")
        await world.note(message)

    node = await world.node(handle)
    await world.put_many(1_000)
    await until(lambda: len(world.dead()) == 1_000)
    change(world, node, topic(qps=50))
    rejecting = False
    assert 1_000 == (await world.dead_letters.replay("acme", rate=FAST)).replayed
    await world.put_many(100, project="other")
    await until(lambda: sum(each.project == "other" for each in world.handled) == 100)
    assert sum(each.project == "acme" for each in world.handled) < 900
