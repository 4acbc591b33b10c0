"""What a node says of groups that may be empty: all that isn't durably settled counts, wherever it is (E3, L)."""

import asyncio

import pytest

from evenlane.engine.core.message.message import Retry
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.wire.group_gc_messages import GroupQuestion, GroupRequest
from evenlane.engine.node.services.group_inspector import GroupInspector
from tests.support.node.world import SECOND, World, topic
from tests.support.until import until

HOUR = 3_600 * SECOND


@pytest.fixture
async def world():
    async with World(acme=topic(groups=2), dead=topic(groups=2, state="paused")) as world:
        yield world


async def inspected(node, *groups, deep=True, project="acme"):
    return await GroupInspector(node).at(GroupRequest(1, "_INBOX.x", (GroupQuestion(project, groups),), deep))


async def full(node, *groups, **options):
    return (await inspected(node, *groups, **options)).full.get(options.get("project", "acme"), [])


async def test_what_holds_nothing(world):
    """Each partition is told of under its epoch."""
    node = await world.node()
    assert ({0: 1, 1: 1}, {}) == ((answer := await inspected(node, 2, 3)).epochs, answer.full)


async def test_what_waits(world):
    node = await world.node()
    await world.put(project="dead", group=5)
    assert [5] == await full(node, 4, 5, project="dead")
    await until(lambda: node.backlog)
    assert [5] == await full(node, 4, 5, project="dead", deep=False)


async def test_what_runs(world):
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
async def test_what_is_to_be_tried_again(world, ordered):
    """Its copy waits in the later stream; in an ordered topic it stays where it is."""
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
async def test_what_is_due_later(world, hours):
    """Of any hour, fed or not."""
    node = await world.node()
    await world.put(group=4, due=node.store.now() + int(hours * HOUR))
    assert [4] == await full(node, 4, 5)


async def test_what_is_settled_and_still_there_is_nothing(world):
    """A lane pinned by another tenant's message keeps what came after it for a while."""
    node = await world.node()
    await world.put(project="dead", group=1)
    await world.put(project="dead", group=0)  # both lanes
    ids = [await world.put(group=group) for group in (2, 3) for _ in range(5)]
    await until(lambda: set(ids) <= set(world.ids))
    there = world.waiting()
    assert there > 2, "the settled ones are there still, or this test shows nothing"

    async def empty():
        return not await full(node, 2, 3)

    await until(empty, 3)
    assert there == world.waiting(), "they were removed meanwhile, so this test shows nothing"
    assert [] != await full(node, 0, 1, project="dead")


async def test_what_is_done_but_not_durably_so(world):
    """Another owner would handle it again."""
    node = await world.node()
    world.server.refuse("settled.", Lost("as the test wants it"))
    await world.put(group=2)
    await until(lambda: world.handled)
    assert [2] == await full(node, 2)
    world.server.accept("settled.")

    async def empty():
        return not await full(node, 2)

    await until(empty)


async def test_a_partition_that_could_not_be_looked_at_is_not_told_of(world, monkeypatch):
    node = await world.node()
    held = node.store.held

    async def lost(lane, project):
        if lane == ("later", 1):
            raise Lost("no answer")
        return await held(lane, project)

    monkeypatch.setattr(node.store, "held", lost)
    assert {0: 1} == (await inspected(node, 2)).epochs


async def test_a_node_whose_lease_is_not_trusted_tells_of_nothing(world):
    """O: it may have another owner by now."""
    node = await world.node()
    node.trust(0)
    assert {} == (await inspected(node, 2)).epochs


async def test_a_partition_of_which_another_has_come_to_be_the_owner_is_not_told_of(world):
    """O: its log is another's."""
    node = await world.node()
    node.partitions[0].lane.fenced = True
    assert {1: 1} == (await inspected(node, 2)).epochs


async def test_many_projects_are_looked_up_in_one_question_to_the_store(world, monkeypatch):
    """E2."""
    node = await world.node()
    await world.put(project="p9", group=3)
    asked = []
    counts = node.store.counts

    async def counted(lane):
        asked.append(lane)
        return await counts(lane)

    monkeypatch.setattr(node.store, "counts", counted)
    wanted = tuple(GroupQuestion(f"p{number}", (3,)) for number in range(20))
    answer = await GroupInspector(node).at(GroupRequest(1, "_INBOX.x", wanted, True))
    assert {"p9": [3]} == answer.full
    assert len(asked) == 4
