"""From feed to hand: order, priority, bounds; and messages that belong nowhere."""

import asyncio

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.names import LaneId
from evenlane.engine.core.ports import Lost
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.tuning import Tuning
from evenlane.ring.hashing import partition_of
from tests.support.node.two import P, Two
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, change, topic, turns
from tests.support.until import until


async def test_strict_priority_behind_a_backlog():
    """E5: a high message that arrives behind thousands of low ones is handled next."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(3000, priority="low")
        node = await world.node(handle, concurrency=1)
        await until(lambda: node.workers.running and node.backlog == 2999)
        urgent = await world.put(priority="high")
        await until(lambda: node.backlog == 3000)
        gate.set()
        await until(lambda: len(world.handled) > 10)
        assert urgent == world.ids[1]


async def test_strict_priority_in_a_backlog_that_is_taken_over():
    """E5: what is urgent goes first though it stands behind all else in the stream."""
    async with World() as world:
        await world.put_many(1000, priority="low")
        middle = await world.put_many(2, priority="mid")
        urgent = await world.put_many(2, priority="high")
        await world.node(concurrency=1)
        await until(lambda: len(world.handled) > 10)
        assert [*urgent, *middle] == world.ids[:4]


PATIENT = Tuning(patience_s=3_600.0)
"""Nobody is helped by the second after which lower bands go nevertheless."""


@pytest.mark.parametrize("gone", [(11,), (12,), (11, 12)])
async def test_lower_bands_do_not_wait_for_what_is_gone(gone):
    """E5, E10: what is urgent in the backlog, or what stands last in it, is removed and never comes in."""
    async with World() as world:
        await world.put_many(10, priority="low")
        await world.put(priority="high")
        await world.put(priority="low")
        for sequence in gone:
            await world.store.delete(LaneId("lanes", partition_of("acme", 0, 2, CLUSTER_CONFIG.partitions)), sequence)
        await world.node(tuning=PATIENT)
        await world.all_gone()
        assert len(world.handled) == 12 - len(gone)


@pytest.mark.parametrize("late", [-SECOND, SECOND // 5], ids=["due before", "due soon after"])
async def test_what_is_due_waits_no_longer_than_the_backlog(late):
    """E5, E10: of the later stream, whose queue has nothing in the lane that comes in."""
    async with World() as world:
        await world.put_many(3, priority="high")
        await world.store.delete(LaneId("lanes", partition_of("acme", 0, 2, CLUSTER_CONFIG.partitions)), 3)
        due = await world.put(priority="mid", due=world.store.now() + late)
        await world.node(tuning=PATIENT)
        await world.all_gone()
        assert due in world.ids


async def test_what_is_due_is_told_when_a_longer_backlog_has_come_in():
    async with World() as world:
        await world.put_many(4900, priority="high")
        due = await world.put(priority="mid", due=world.store.now() - SECOND)
        await world.node(tuning=PATIENT)
        await until(lambda: due in world.ids, what="the due message to be handled")


async def test_a_full_queue_never_holds_up_another():
    """E8, E9: a queue reads ahead up to its bound and no further, and others are fed meanwhile."""
    gate = asyncio.Event()
    async with World(hog=topic(), acme=topic()) as world:

        async def handle(message):
            if message.project == "hog":
                await gate.wait()
            world.handled.append(message)

        await world.put_many(2000, project="hog")
        await world.put_many(20, project="acme")
        # (with four slots a node that has seen instant handlers chooses some ahead, which come back to the hand)
        node = await world.node(handle, concurrency=3, limits=MemoryBudget(read_ahead=16, index=100_000))
        await until(lambda: node.backlog + len(node.workers.running) + len(world.handled) == 2020)
        (hog,), (acme,) = node.queues.of("hog"), node.queues.of("acme")
        assert len(hog.hand) <= 16
        assert acme.backlog + len(world.handled) >= 16
        gate.set()
        await world.all_gone()


async def test_order_within_a_queue_survives_index_and_spill():
    """E8, M: hand, index and spill are bounded, and first attempts keep the order of their puts."""
    async with World() as world:
        await world.put_many(3000)
        limits = MemoryBudget(read_ahead=8, index=50)
        node = await world.node(concurrency=1, limits=limits)
        late = await world.put_many(500)
        await world.all_gone(30)
        assert 3500 == len(world.handled)
        assert late == world.ids[3000:]
        assert list(range(1, 3501)) == [message.sequence for message in world.handled]
        assert (0, 0) == (limits.held, node.backlog)


async def test_payload_budget_is_kept():
    """M: payloads beyond the node's budget are dropped and read again by sequence."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        for group in range(10):
            for _ in range(20):
                await world.put(b"y" * 10_000, group=group)
        limits = MemoryBudget(payload_bytes=100_000, read_ahead=256)
        node = await world.node(handle, concurrency=1, limits=limits)
        await until(lambda: node.backlog == 199)
        assert limits.held <= 100_000 + 2 * 10_100  # what is read while it fills comes on top
        gate.set()
        await world.all_gone(20)
        assert {10_000} == {len(message.body) for message in world.handled}
        assert 0 == limits.held


async def test_groups_take_turns():
    """Groups in turn: one with a long backlog gets no more than another."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(100, group=0)
        await world.put_many(100, group=2)
        node = await world.node(handle, concurrency=1)
        await until(lambda: node.backlog == 199)
        gate.set()
        await world.all_gone()
        first = [message.group for message in world.handled[1:21]]
        assert 10 == first.count(0)
        assert 200 == node.counters.handled


async def test_missing_message_is_noticed_and_skipped():
    """E12: a sequence that was indexed and is gone is counted, settled, and blocks nothing."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(100)
        node = await world.node(handle, concurrency=1, limits=MemoryBudget(read_ahead=4))
        await until(lambda: node.backlog == 99)
        lane = world.busy_lane
        for sequence in (50, 51, 99):
            await world.store.delete(lane, sequence)
        gate.set()
        await world.all_gone()
        assert (97, 3) == (len(world.handled), node.counters.missing)
        assert 3 == sum(queue.missing for queue in node.queues.all())


async def test_holes_in_a_lane_pin_nothing():
    """E12: what was deleted before it was fed is passed over, and the watermark passes it, too."""
    async with World() as world:
        await world.put_many(50)
        lane = world.busy_lane
        for sequence in (1, 2, 17, 30):
            await world.store.delete(lane, sequence)
        node = await world.node()
        await world.all_gone()
        assert 46 == len(world.handled)
        assert 50 == node.partitions[lane.partition].lane.removal.durable_watermark


async def test_paused_topic_waits_and_resumes():
    """X4: pause and resume act on the backlog that is there."""
    async with World(acme=topic(state="paused"), bolt=topic()) as world:
        await world.put_many(600)
        await world.put_many(3, project="bolt")
        node = await world.node()
        await until(lambda: len(world.handled) == 3)
        (queue,) = node.queues.of("acme")
        assert (600, 0, "paused") == (queue.backlog, len(queue.hand), node.wait_rules.reason(queue) or "paused")
        change(world, node, topic())
        await world.all_gone()
        assert 603 == len(world.handled)


async def test_pausing_lays_payloads_down_and_keeps_order():
    """X4, M: what was at hand when the topic was paused comes first again after it."""
    seen = []
    async with World() as world:
        await world.put_many(300)
        node = await world.node(lambda message: seen.append(message.sequence), concurrency=1)
        await until(lambda: len(seen) > 20)
        change(world, node, topic(state="paused"))
        await turns()
        held = node.limits.held
        change(world, node, topic())
        await world.all_gone()
        assert 0 == held
        assert list(range(1, 301)) == seen


async def test_unknown_project_waits_for_its_topic():
    """A backlog without a topic is kept until there is one."""
    async with World(bolt=topic()) as world:
        await world.put_many(10)
        node = await world.node()
        await until(lambda: node.backlog == 10)
        assert [] == world.handled
        change(world, node, topic())
        await world.all_gone()
        assert 10 == len(world.handled)


async def test_strays_go_to_the_dead_letters():
    """A message on a lane subject that no queue has is kept aside, with a reason, and pins nothing."""
    async with World() as world:
        for subject in ("acme.abc.mid", "acme.0.urgent", "ac$me.0.mid", "acme.007.mid", "acme.1e3.low"):
            await world.store.put(f"lanes.online.0.{subject}", b"", b"body")
        await world.put()
        node = await world.node()
        await world.all_gone()
        assert (1, 5) == (node.counters.handled, node.counters.stray)
        reasons = {h.value(dead.headers, h.REASON) for dead in world.dead()}
        assert 5 == len(reasons)
        assert {names.dead_subject("online", "_stray")} == {dead.subject for dead in world.dead()}


async def test_catch_up_with_a_backlog_dispatches_complete_queues_at_once():
    """E5, E14: beside the catch-up a tail feed runs: a queue without a backlog is served at once, one with a
    backlog keeps its order.
    """

    async with World() as world:
        await world.put_many(2000, priority="low")
        gate = asyncio.Event()

        async def handle(message):
            if message.priority == "low":
                await gate.wait()
            world.handled.append(message)

        node = await world.node(handle, concurrency=2, tuning=Tuning(tail_beyond=100))
        new = await world.put_many(50, priority="low")
        urgent = await world.put(priority="high")
        await until(lambda: len(node.workers.running) == 2)
        gate.set()
        await world.all_gone(20)
        low = [message for message in world.handled if message.priority == "low"]
        assert urgent in world.ids
        assert 2050 == len(low)
        assert new == [message.id for message in low[-50:]]
        await until(lambda: not any(each.lane.catching_up for each in node.partitions.values()))


async def test_a_small_queue_behind_a_large_backlog_does_not_wait_for_the_catch_up(monkeypatch):
    """V, Z6: it is read by its subject, once each, whatever comes before it in the stream."""
    from evenlane.engine.store.memory import feed

    monkeypatch.setattr(feed, "_BATCH", 1)
    here = partition_of("acme", 0, 2, 2)
    hog = next(name for name in map("hog{}".format, range(99)) if partition_of(name, 0, 2, 2) == here)
    async with World(**{hog: topic(state="paused"), "acme": topic()}) as world:
        await world.put_many(3000, project=hog)
        small = await world.put_many(20)
        early: list[bool] = []

        async def handle(message):
            early.append(message.lane.catching_up)
            world.handled.append(message)

        node = await world.node(handle, tuning=Tuning(tail_beyond=100))
        small += await world.put_many(5)
        await until(lambda: len(world.handled) == 25)
        assert all(early[:20])
        assert sorted(small) == sorted(world.ids)
        await until(lambda: not any(each.lane.catching_up for each in node.partitions.values()))
        assert 3000 == node.backlog
        assert 25 == len(world.handled)


async def test_a_message_deleted_in_the_spill_pins_nothing():
    """E12: a sequence that goes while nobody holds it is found missing, counted, and passed."""
    gate = asyncio.Event()
    async with World() as world:

        async def handle(message):
            await gate.wait()
            world.handled.append(message)

        await world.put_many(300)
        node = await world.node(
            handle, concurrency=1, limits=MemoryBudget(read_ahead=4, index=10), tuning=Tuning(pinned_for=0)
        )
        await until(lambda: node.backlog == 299)
        for sequence in (100, 200, 201, 300):
            await world.store.delete(world.busy_lane, sequence)
        gate.set()
        lane = world.busy_lane
        await until(lambda: node.partitions[lane.partition].lane.removal.durable_watermark == 300)
        assert (296, 4) == (len(world.handled), node.counters.missing)


async def test_a_take_over_does_not_wait_for_delayed_messages():
    """Z6: the first message starts as soon as the lane is fed; what is delayed comes in when the store lets it. Until
    then the partition isn't open to those who count, or drop, what waits.
    """
    async with Two() as world:
        node = await world.bare()
        counts, asked, answered = node.store.counts, [], asyncio.Event()

        async def slow_for_later(lane):
            if lane.kind == "later":
                asked.append(lane)
                if len(asked) == 1:
                    raise Lost("no answer")
                await answered.wait()
            return await counts(lane)

        node.store.counts = slow_for_later
        first, due = await world.put(), await world.put(due=world.store.now())
        opening = asyncio.ensure_future(node.owned.open(P, 1))
        await until(lambda: first in world.ids)
        await until(lambda: len(asked) == 2)
        assert due not in world.ids
        assert not node.partitions[P].opened
        answered.set()
        await opening
        assert node.partitions[P].opened
        await until(lambda: due in world.ids)
