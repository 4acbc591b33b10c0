"""A node's answer about groups that may be empty: each message that isn't durably settled counts (E3, L)."""

import asyncio

import pytest

from evenlane.engine.cluster.subscriptions.registry import RegistryView, Subscription
from evenlane.engine.core.message.handler_exceptions import Retry
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.records.group_gc_messages import GroupQuestion, GroupRequest
from evenlane.engine.node.services.group_inspector import GroupInspector
from evenlane.engine.node.tuning import NodeTuning
from tests.support.node.subscriptions import AUDIT, start
from tests.support.node.world import SECOND, World, is_durable, topic
from tests.support.until import until

HOUR = 3_600 * SECOND


@pytest.fixture
async def world():
    async with World(acme=topic(groups=2), dead=topic(groups=2, state="paused")) as world:
        yield world


async def inspected(node, *groups, deep=True, project="acme"):
    return await GroupInspector(node).inspect(GroupRequest(1, "_INBOX.x", (GroupQuestion(project, groups),), deep))


async def full(node, *groups, **options):
    return (await inspected(node, *groups, **options)).full.get(options.get("project", "acme"), [])


async def test_answer_has_the_epoch_of_each_partition(world):
    node = await world.node()
    assert ({0: 1, 1: 1}, {}) == ((answer := await inspected(node, 2, 3)).epochs, answer.full)


async def test_group_with_a_waiting_message_is_full(world):
    node = await world.node()
    await world.put(project="dead", group=5)
    assert [5] == await full(node, 4, 5, project="dead")
    await until(lambda: node.backlog)
    assert [5] == await full(node, 4, 5, project="dead", deep=False)


async def test_group_with_a_running_message_is_full(world):
    go = asyncio.Event()

    async def wait(_message):
        await go.wait()

    node = await world.node(wait)
    await world.put(group=7)
    await until(lambda: node.in_flight)
    assert [7] == await full(node, 6, 7)
    assert [7] == await full(node, 6, 7, deep=False)
    go.set()
    await world.all_gone()
    assert [] == await full(node, 6, 7)


@pytest.mark.parametrize("ordered", [False, True])
async def test_group_with_a_message_between_attempts_is_full(world, ordered):
    """Its copy is in the delay stream; in an ordered topic, the message stays in its lane."""
    world.topics["acme"] = topic(groups=2, ordered=ordered)
    attempts = []

    async def fail(message):
        attempts.append(message.attempt)
        raise Retry(after=3_600 * 5)

    node = await world.node(fail)
    await world.put(group=3, headers={"Evenlane-Key": "k"})
    await until(lambda: attempts and not node.in_flight and not node.failures.crowded)
    await until(
        lambda: len(world.server.messages("LANES_online_0") + world.server.messages("LANES_online_1")) == ordered
    )
    assert [3] == await full(node, 2, 3)


@pytest.mark.parametrize("hours", [0.01, 1, 5, 24 * 300])
async def test_group_with_a_delayed_message_is_full(world, hours):
    """Whether its hour is fed or not."""
    node = await world.node()
    await world.put(group=4, due=node.store.now() + int(hours * HOUR))
    assert [4] == await full(node, 4, 5)


async def test_group_with_settled_messages_is_empty(world):
    """They are still in the lane, which a message of another project pins."""
    node = await world.node(tuning=NodeTuning(pinned_for=HOUR))
    await world.put(project="dead", group=1)
    await world.put(project="dead", group=0)  # (both lanes)
    ids = [await world.put(group=group) for group in (2, 3) for _ in range(5)]
    await until(lambda: set(ids) <= set(world.ids))
    there = world.waiting()
    assert there > 2, "the settled messages are gone, so this test shows nothing"

    async def empty():
        return not await full(node, 2, 3)

    await until(empty)
    assert there == world.waiting(), "the settled messages were removed meanwhile, so this test shows nothing"
    assert [] != await full(node, 0, 1, project="dead")


async def test_group_with_an_unsettled_result_is_full(world):
    """Another owner would handle the message again."""
    node = await world.node()
    world.server.refuse("settled.", Lost("no answer"))
    await world.put(group=2)
    await until(lambda: world.handled)
    assert [2] == await full(node, 2)
    world.server.accept("settled.")

    async def empty():
        return not await full(node, 2)

    await until(empty)


async def test_answer_omits_a_partition_that_the_store_does_not_count(world):
    node = await world.node()
    count_by_subject = node.store.count_by_subject

    async def lost(lane, project):
        if lane == ("later", 1):
            raise Lost("no answer")
        return await count_by_subject(lane, project)

    node.store.count_by_subject = lost
    assert {0: 1} == (await inspected(node, 2)).epochs


async def test_answer_of_an_untrusted_node_is_empty(world):
    """O: its partitions may have other owners."""
    node = await world.node()
    node.trust(0)
    assert {} == (await inspected(node, 2)).epochs


async def test_answer_omits_a_fenced_partition(world):
    """O: its log is another owner's."""
    node = await world.node()
    node.partitions[0].lane.fenced = True
    assert {1: 1} == (await inspected(node, 2)).epochs


async def test_many_projects_cost_one_request_per_stream(world):
    """E2."""
    node = await world.node()
    await world.put(project="p9", group=3)
    asked = []
    counts = node.store.counts

    async def counted(lane):
        asked.append(lane)
        return await counts(lane)

    node.store.counts = counted
    questions = tuple(GroupQuestion(f"p{number}", (3,)) for number in range(20))
    answer = await GroupInspector(node).inspect(GroupRequest(1, "_INBOX.x", questions, True))
    assert {"p9": [3]} == answer.full
    assert len(asked) == 4


# ---- several subscriptions


class Audit:
    """The handler of another subscription: what it does is set by the test."""

    def __init__(self):
        self.go, self.seen, self.error = asyncio.Event(), [], None

    async def __call__(self, message):
        self.seen.append(message.id)
        await self.go.wait()
        if self.error is not None:
            raise self.error


async def with_audit(world, audit, **entry):
    """A node that has handled a message of group 3, which another subscription is still handling."""
    view = RegistryView(7, {"audit": Subscription(state="active", **entry)})
    node = await start(world, view=view)
    if audit is not None:
        await start(world, audit, AUDIT, view)
    await world.put(group=3)
    await until(lambda: world.handled and is_durable(node) and (audit is None or audit.seen))
    return node


async def test_group_with_a_message_for_another_subscription_is_full(world):
    """K10, E3: it is empty once that one has settled the message, too."""
    node = await with_audit(world, audit := Audit())
    assert [3] == await full(node, 2, 3)
    audit.go.set()
    await world.all_gone()
    assert [] == await full(node, 2, 3)


async def test_group_that_another_subscription_retries_is_full(world):
    """K10, E3: the retry is in that one's own stream."""
    audit = Audit()
    audit.error = Retry(after=3_600 * 5)
    audit.go.set()
    node = await with_audit(world, audit)
    await world.all_gone()
    assert [3] == await full(node, 2, 3)


@pytest.mark.parametrize(("projects", "expected"), [(["other-*"], []), (["ac*"], [3]), ([], [3])])
async def test_group_is_held_only_by_subscriptions_that_get_its_messages(world, projects, expected):
    """K10, E3: one that has no nodes doesn't hold a topic whose messages it doesn't get."""
    node = await with_audit(world, None, projects=projects)
    assert expected == await full(node, 2, 3)


async def test_settled_messages_of_a_large_group_are_left_out(world):
    """K10, E3: a group with many messages that wait for their removal is empty, as soon as all have settled them."""
    node = await with_audit(world, audit := Audit())
    await world.put_many(1_500, group=3)
    await until(lambda: len(world.handled) == 1_501 and is_durable(node), 120)
    assert [3] == await full(node, 2, 3)
    audit.go.set()
    await until(lambda: is_empty(node), 120)


async def is_empty(node):
    return await full(node, 2, 3) == []
