"""A partition goes from one node to another on the store in memory, while handlers of it still run (P6)."""

import asyncio

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Refused
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.scheduler.interface import start_next
from evenlane.engine.node.tuning import DEFAULT
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
    """A message whose handler runs on under node a, which has released the partition: its id, and a's record."""
    own = await put(world, kind)
    world.slow.add(("a", own))
    a = await world.bare("a", **options)
    await a.owned.open(P, 1)
    await until(lambda: ("a", own) in world.begun)
    return own, await world.released(a, 1)


@pytest.mark.parametrize("kind", ["lanes", "later"])
class TestHeld:
    async def test_what_ends_at_the_old_owner_is_settled_by_the_new_one(self, world, kind):
        """Z1, D: it isn't begun again, neither here nor after a crash."""
        own, record = await slow_one(world, kind)
        assert [1] == record.lanes[kind].running
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        other = await put(world, kind)
        await until(lambda: ("b", other) in world.begun)
        world.gate.set()
        await until(lambda: world.record().lanes[kind].done == [1])
        b.owned.held_changed(P, world.record())
        await until(lambda: b.owned.held_durable(P, world.record()))
        assert 1 in (await world.settled(lane_of(kind))).settled or kind == "later"
        await world.crash(b)
        c = await world.bare("c")
        await c.owned.open(P, 3)
        await until(lambda: world.waiting() == 0)
        assert {other: 1} == world.times("b")
        assert {} == world.times("c")
        assert sorted([own, other]) == sorted(world.ids)

    async def test_what_fails_at_the_old_owner_is_retried_once(self, world, kind):
        """K2."""
        own, record = await slow_one(world, kind)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        world.error = ValueError("no")
        world.gate.set()
        await until(lambda: world.record().lanes[kind].done == [1])
        b.owned.held_changed(P, world.record())
        await until(lambda: own in world.ids)
        await until(lambda: world.waiting() == 0)
        assert {own: 1} == world.times("a")
        assert {own: 1} == world.times("b")
        assert [2] == [message.attempt for message in world.handled]

    async def test_what_nobody_ends_is_handed_out_again_once(self, world, kind):
        """L: its old owner died."""
        own, record = await slow_one(world, kind)
        await world.crash(world.nodes[0])
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        other = await put(world, kind)
        await until(lambda: other in world.ids)
        assert {other: 1} == world.times("b")
        b.owned.held_gone(P, record)
        b.owned.held_gone(P, record)
        await until(lambda: own in world.ids)
        await until(lambda: world.waiting() == 0)
        assert {other: 1, own: 1} == world.times("b")

    async def test_it_passes_on_from_owner_to_owner(self, world, kind):
        """Each new one reads what all former ones hold."""
        own, record = await slow_one(world, kind)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        b.owned.stop_partition(P)
        assert {} == await b.owned.hand_off(P, 2)
        c = await world.bare("c")
        await c.owned.open(P, 3, [record])
        world.gate.set()
        await until(lambda: world.record().lanes[kind].done == [1])
        c.owned.held_changed(P, world.record())
        await until(lambda: world.waiting() == 0)
        assert [own] == world.ids

    async def test_what_was_done_but_not_settled_is_settled_by_the_new_one(self, world, kind):
        """D: the log didn't answer in time."""
        own = await put(world, kind)
        a = await world.bare("a", settle_interval=60)
        await a.owned.open(P, 1)
        await until(lambda: own in world.ids)
        world.server.delay_acks()
        record = await world.released(a, 1)
        world.server.delay_acks(0)
        assert [1] == record.lanes[kind].done
        assert not record.running
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        await until(lambda: b.owned.held_durable(P, record))
        await until(lambda: world.waiting() == 0)
        assert {own: 1} == world.times("a")
        assert {} == world.times("b")

    async def test_a_stream_that_was_replaced_voids_the_word_of_its_old_owner(self, world, kind):
        """L, E12: the same numbers are other messages' now."""
        _, record = await slow_one(world, kind)
        world.server.replace("online", lane_of(kind))
        other = await put(world, kind)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        await until(lambda: other in world.ids)
        assert {other: 1} == world.times("b")

    async def test_so_does_one_that_was_rolled_back(self, world, kind):
        """L: before the take-over."""
        _, record = await slow_one(world, kind)
        world.server.roll_back("online", lane_of(kind), 0)
        other = await put(world, kind)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        await until(lambda: other in world.ids)

    async def test_or_that_is_rolled_back_after_the_take_over(self, world, kind):
        """L: what ends at the old owner names a message that there is no more."""
        _, record = await slow_one(world, kind)
        b = await world.bare("b")
        await b.owned.open(P, 2, [record])
        world.slow.clear()
        world.server.roll_back("online", lane_of(kind), 0)
        lane = b.partitions[P].lane if kind == "lanes" else b.partitions[P].later
        await until(lambda: lane.generation)
        world.slow.add(("b", "new"))
        await put(world, kind, id="new")
        await until(lambda: ("b", "new") in world.begun)
        done = HeldLane(
            **{name: getattr(record.lanes[kind], name) for name in ("created", "high", "high_at")}, done=[1]
        )
        b.owned.held_changed(P, HeldRecord(id="a", lanes={kind: done}))
        other = await put(world, kind)
        await until(lambda: other in world.ids and not lane.log.unsynced_count)
        await world.crash(b)
        c = await world.bare("c")
        await c.owned.open(P, 3)
        await until(lambda: "new" in world.ids)


async def test_a_message_whose_copy_is_not_put_yet_is_held_too(world):
    """L, D: its handler has failed; whether its retry stands is known to the old owner alone."""
    own = await world.put()
    world.server.refuse("later.")
    world.slow, world.error = {("a", own)}, ValueError("no")
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
    b.owned.held_changed(P, world.record())
    await until(lambda: world.waiting() == 0)
    assert ({own: 1}, {own: 1}) == (world.times("a"), world.times("b"))
    assert [2] == [message.attempt for message in world.handled]


async def test_a_store_that_refuses_for_a_while_is_waited_for(world):
    """Fault 3: its disk is full, say. A node that ended for it would be followed by the next one, and so on."""
    own = await world.put()
    world.server.refuse("settled.")
    a = await world.bare("a")
    opening = asyncio.ensure_future(a.owned.open(P, 1))
    await turns(50)
    world.server.accept("settled.")
    await opening
    await until(lambda: own in world.ids)


async def test_a_store_that_refuses_for_long_has_a_line_for_each_error_not_for_each_try(world):
    """F5: 128 partitions that are tried again each 5 s would fill the log."""
    a = await world.bare("a")
    begun = "the take-over begins anew"
    with capture_logs() as lines:
        world.server.refuse("settled.")
        opening = asyncio.ensure_future(a.owned.open(P, 1))
        await until(lambda: any(line["event"] == f"{begun} once more" for line in lines), what="the second try")
        world.server.refuse("settled.", Refused("another reason"))
        await until(lambda: any(line.get("error") == "another reason" for line in lines), what="the third try")
        world.server.accept("settled.")
        await opening
    assert ["puts to settled. are refused", "another reason"] == [
        line["error"] for line in lines if line["event"] == begun and line["log_level"] == "warning"
    ]


class TestLosing:
    async def test_one_that_is_lost_while_it_is_handed_over_is_no_failure(self, world):
        """O."""
        own = await world.put()
        world.slow.add(("a", own))
        a = await world.bare("a")
        await a.owned.open(P, 1)
        await until(lambda: a.workers.running)
        a.owned.stop_partition(P)
        handing = asyncio.ensure_future(a.owned.hand_off(P, 1, 0.05))
        await turns(3)
        await a.owned.drop_partition(P, 1)
        assert {} == await handing
        world.gate.set()
        await until(lambda: not a.workers.running)
        assert (0, 1) == (a.counters.handled, a.counters.void)

    async def test_what_was_handed_out_but_never_begun_is_not_said_to_run(self, world, monkeypatch):
        """L: the lease was over when its thread came to it, and the partition was released."""
        begun, gate = [], asyncio.Event()
        a = await world.bare("a", handler=begun.append)
        run = a._calls.in_thread

        async def late(call):
            await gate.wait()
            return await run(call)

        monkeypatch.setattr(a._calls, "in_thread", late)
        await world.put()
        await a.owned.open(P, 1)
        await until(lambda: a.workers.running)
        record = await world.released(a, 1)
        assert [1] == record.lanes["lanes"].running
        reported = []
        world.lanes["lanes"].on_change = lambda: reported.append(world.record().running)
        a.trust(0)
        gate.set()
        await until(lambda: not world.record().running, what="its old owner to give it free")
        assert [] == world.record().lanes["lanes"].done
        assert [False] == reported
        assert [] == begun

    async def test_it_gives_all_of_its_memory_back(self, world):
        """M: payloads at hand, places in the scheduler, queues."""
        limits = MemoryBudget()
        for n in range(300):
            await world.put(b"x" * 100, group=GROUPS[n % len(GROUPS)], priority=("low", "mid")[n % 2])
        for _ in range(20):
            await world.put(b"x" * 100, due=due_soon())
        world.slow = {("*", f"m{n}") for n in range(1, 321)}
        a = await world.bare("a", limits=limits)
        await a.owned.open(P, 1)
        await until(lambda: len(a.workers.running) == 8 and limits.held > 0)
        record = await world.released(a, 1)
        assert (8, 0) == (sum(len(lane.running) for lane in record.lanes.values()), limits.held)
        assert ([], 0, 0) == (list(a.queues.all()), a.queues.projects, a.backlog)
        world.gate.set()
        await until(lambda: not a.workers.running)
        assert None is start_next(a.scheduler, now_ns())
        assert 8 == len(world.begun)
        assert 0 == limits.held

    async def test_what_is_being_read_does_not_come_back(self, world, monkeypatch):
        """M, O: the answer comes when the partition is another's."""
        limits = MemoryBudget(read_ahead=4)
        await world.put_many(50)
        a = await world.bare("a", limits=limits, concurrency=1)
        gate, asked, get = asyncio.Event(), [], a.store.get

        async def late(lane, sequences):
            asked.append(sequences)
            found = await get(lane, sequences)
            await gate.wait()
            return found

        monkeypatch.setattr(a.store, "get", late)
        await a.owned.open(P, 1)
        await until(lambda: asked and not a.workers.running)
        before = len(world.begun)
        await world.released(a, 1)
        gate.set()
        await until(lambda: not a.ready.reader._tasks)
        await turns()
        assert (before, 0) == (len(world.begun), limits.held)
        assert None is start_next(a.scheduler, now_ns())
        b = await world.bare("b")
        await b.owned.open(P, 2)
        await until(lambda: world.waiting() == 0)
        assert 50 == len(world.begun)

    async def test_it_comes_back_to_a_node_that_had_it(self, world):
        """Z1: with nothing left of the first time."""
        await world.put_many(100)
        a, b = await world.bare("a"), await world.bare("b")
        for epoch in range(1, 12, 2):
            for name, node in (("a", a), ("b", b)):
                await node.owned.open(P, epoch + (name == "b"), [])
                await world.put_many(20)
                await turns(epoch)
                await world.released(node, epoch + (name == "b"))
        await a.owned.open(P, 50)
        await until(lambda: world.waiting() == 0)
        assert 100 + 20 * 12 == len(set(world.ids)) == len(world.begun)


async def test_sequences_that_no_message_has_are_held_by_nobody(world):
    """F4: anybody may write such a record; what else it says counts."""
    await world.put_many(5)
    word = world.held([0, 3, 6, 2**62], [4, 7, 2**70])
    node = await world.bare("b")
    await asyncio.wait_for(node.owned.open(P, 1, [word]), 5)
    lane = node.partitions[P].lane
    assert {3, 4} == lane.held.keys()
    await until(lambda: 3 == len(world.handled))


async def test_a_large_backlog_is_caught_up_around_what_is_held(world):
    """Z3: above the bound from which a tail feed runs."""
    world.topics["acme"] = topic(qps=1_000_000)
    count = DEFAULT.tail_beyond + 500
    for n in range(count):
        await world.put(id=f"{n + 1}", group=GROUPS[n % 2])
    b = await world.bare("b", limits=MemoryBudget(index=200), concurrency=32)
    word = world.held([3, 2_000, 5_400], [7])
    await b.owned.open(P, 2, [word])
    await world.put(id="new")
    await until(lambda: len(world.begun) == count + 1 - 4, 60)
    b.owned.held_gone(P, word)
    await until(lambda: world.waiting() == 0, 60)
    assert 1 == max(world.times("b").values())
    assert {"7"} == {str(n + 1) for n in range(count)} - world.times("b").keys()
