"""A partition moves from one node to another on the store in memory, while handlers of it still run (P6)."""

import asyncio

import pytest
from structlog.testing import capture_logs

from evenlane.engine.core.ports import Refused
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.node.tuning import NodeTuning
from evenlane.ring.membership.records import HeldLane, HeldRecord
from tests.support.node.two import GROUPS, P, Two, due_soon, lane_of
from tests.support.node.world import topic, turns
from tests.support.until import until


async def put(world, kind, **options):
    return await world.put(due=due_soon() if kind == "later" else None, **options)


@pytest.fixture
async def world():
    async with Two() as made:
        yield made


async def slow_one(world, kind, **options):
    """A message whose handler runs on at node a, which has released the partition. Returns its id and a's record."""
    message_id = await put(world, kind)
    world.slow.add(("a", message_id))
    a = await world.bare("a", **options)
    await a.owned.open(P, 1)
    await until(lambda: ("a", message_id) in world.begun)
    return message_id, await world.released(a, 1)


@pytest.mark.parametrize("kind", ["lanes", "later"])
class TestHeldMessages:
    async def test_next_owner_settles_messages_that_end_at_the_previous_one(self, world, kind):
        """Z1, D: it doesn't start again, neither there nor after a crash."""
        message_id, record = await slow_one(world, kind)
        assert [1] == record.lanes[kind].running
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        other = await put(world, kind)
        await until(lambda: ("b", other) in world.begun)
        world.gate.set()
        await until(lambda: world.record().lanes[kind].done == [1])
        b.owned.on_held_change(P, world.record())
        await until(lambda: b.owned.is_held_durable(P, world.record()))
        assert 1 in (await world.settled(lane_of(kind))).settled or kind == "later"
        await world.crash(b)
        c = await world.bare("c")
        await c.owned.open(P, 3)
        await world.all_gone()
        assert {other: 1} == world.times("b")
        assert {} == world.times("c")
        assert sorted([message_id, other]) == sorted(world.ids)

    async def test_message_that_fails_at_the_previous_owner_is_retried_once(self, world, kind):
        """K2."""
        message_id, record = await slow_one(world, kind)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        world.error = ValueError("no")
        world.gate.set()
        await until(lambda: world.record().lanes[kind].done == [1])
        b.owned.on_held_change(P, world.record())
        await until(lambda: message_id in world.ids)
        await world.all_gone()
        assert {message_id: 1} == world.times("a")
        assert {message_id: 1} == world.times("b")
        assert [2] == [message.attempt for message in world.handled]

    async def test_message_of_a_dead_previous_owner_runs_again_once(self, world, kind):
        """L."""
        message_id, record = await slow_one(world, kind)
        await world.crash(world.nodes[0])
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        other = await put(world, kind)
        await until(lambda: other in world.ids)
        assert {other: 1} == world.times("b")
        b.owned.on_held_gone(P, record)
        b.owned.on_held_gone(P, record)
        await until(lambda: message_id in world.ids)
        await world.all_gone()
        assert {other: 1, message_id: 1} == world.times("b")

    async def test_message_stays_held_over_a_second_handoff(self, world, kind):
        """Each owner reads the records of all previous ones."""
        message_id, record = await slow_one(world, kind)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        b.owned.stop_partition(P)
        assert {} == await b.owned.hand_off(P, 2)
        c = await world.bare("c")
        await c.owned.open(P, 3, [record])
        world.gate.set()
        await until(lambda: world.record().lanes[kind].done == [1])
        c.owned.on_held_change(P, world.record())
        await world.all_gone()
        assert [message_id] == world.ids

    async def test_unsettled_result_is_settled_by_the_next_owner(self, world, kind):
        """D: the log didn't answer in time."""
        message_id = await put(world, kind)
        a = await world.bare("a", settle_interval=60)
        await a.owned.open(P, 1)
        await until(lambda: message_id in world.ids)
        world.server.delay_acks()
        record = await world.released(a, 1)
        world.server.delay_acks(0)
        assert [1] == record.lanes[kind].done
        assert not record.is_running
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        await until(lambda: b.owned.is_held_durable(P, record))
        await world.all_gone()
        assert {message_id: 1} == world.times("a")
        assert {} == world.times("b")

    @pytest.mark.parametrize("change", ["replaced", "rolled back"])
    async def test_record_of_a_changed_stream_is_ignored(self, world, kind, change):
        """L, E12: its sequences are other messages' now."""
        _, record = await slow_one(world, kind)
        if change == "replaced":
            world.server.replace("online", lane_of(kind))
        else:
            world.server.roll_back("online", lane_of(kind), 0)
        other = await put(world, kind)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        await until(lambda: other in world.ids)
        assert {other: 1} == world.times("b")

    async def test_result_from_before_a_rollback_settles_no_other_message(self, world, kind):
        """L: the rollback happened after the takeover, and the record names a message that was lost."""
        _, record = await slow_one(world, kind)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        world.slow.clear()
        world.server.roll_back("online", lane_of(kind), 0)
        lane = next(each for each in b.partitions[P].lanes if each.id.kind == kind)
        await until(lambda: lane.generation)
        world.slow.add(("b", "new"))
        await put(world, kind, id="new")
        await until(lambda: ("b", "new") in world.begun)
        done = HeldLane(
            **{name: getattr(record.lanes[kind], name) for name in ("created", "high", "high_at")}, done=[1]
        )
        b.owned.on_held_change(P, HeldRecord(id="a", lanes={kind: done}))
        other = await put(world, kind)
        await until(lambda: other in world.ids and not lane.log.unsynced_count)
        await world.crash(b)
        c = await world.bare("c")
        await c.owned.open(P, 3)
        await until(lambda: "new" in world.ids)


async def test_message_with_a_pending_copy_is_held(world):
    """L, D: its handler has failed, and only the previous owner knows whether the copy is stored."""
    message_id = await world.put()
    world.server.refuse("later.")
    world.slow, world.error = {("a", message_id)}, ValueError("no")
    world.gate.set()
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: a.counters.failed)
    record = await world.released(a, 1)
    assert [1] == record.lanes["lanes"].running
    b = await world.bare("b")
    await b.owned.open(P, 2, [record])
    world.server.accept("later.")
    await until(lambda: world.record().lanes["lanes"].done == [1])
    b.owned.on_held_change(P, world.record())
    await world.all_gone()
    assert ({message_id: 1}, {message_id: 1}) == (world.times("a"), world.times("b"))
    assert [2] == [message.attempt for message in world.handled]


async def test_takeover_waits_while_the_store_refuses(world):
    """F5: its disk may be full. If the node ended instead, the next one would, too."""
    message_id = await world.put()
    world.server.refuse("settled.")
    a = await world.bare("a")
    opening = asyncio.ensure_future(a.owned.open(P, 1))
    await turns(50)
    world.server.accept("settled.")
    await opening
    await until(lambda: message_id in world.ids)


async def test_failing_takeover_logs_each_error_once(world):
    """F5: 128 partitions that retry every 5 s would fill the log."""
    a = await world.bare("a")
    begun, again = "the take-over begins anew", "the takeover starts again"
    with capture_logs() as lines:
        world.server.refuse("settled.")
        opening = asyncio.ensure_future(a.owned.open(P, 1))
        await until(lambda: any(line["event"] == again for line in lines), what="the second try")
        world.server.refuse("settled.", Refused("another reason"))
        await until(lambda: any(line.get("error") == "another reason" for line in lines), what="the third try")
        world.server.accept("settled.")
        await opening
    assert ["puts to settled. are refused", "another reason"] == [
        line["error"] for line in lines if line["event"] == begun and line["log_level"] == "warning"
    ]


async def test_impossible_sequences_in_a_record_are_ignored(world):
    """F4: any program may write such a record. Its other sequences count."""
    await world.put_many(5)
    record = world.held_record([0, 3, 6, 2**62], [4, 7, 2**70])
    node = await world.bare("b")
    await asyncio.wait_for(node.owned.open(P, 1, [record]), 30)
    lane = node.partitions[P].lane
    assert {3, 4} == lane.held.keys()
    await until(lambda: 3 == len(world.handled))


async def test_catch_up_skips_held_messages(world):
    """Z3: in a backlog that is large enough for a tail feed."""
    world.topics["acme"] = topic(qps=1_000_000)
    count = 1_000
    for n in range(count):
        await world.put(id=f"{n + 1}", group=GROUPS[n % 2])
    b = await world.bare("b", limits=MemoryBudget(index=50), concurrency=32, tuning=NodeTuning(tail_beyond=500))
    record = world.held_record([3, 400, 900], [7])
    await b.owned.open(P, 2, [record])
    await world.put(id="new")
    await until(lambda: len(world.begun) == count + 1 - 4)
    b.owned.on_held_gone(P, record)
    await world.all_gone()
    assert 1 == max(world.times("b").values())
    assert {"7"} == {str(n + 1) for n in range(count)} - world.times("b").keys()
