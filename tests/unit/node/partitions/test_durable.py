"""Restarts, crashes and outages of the store: nothing is lost, and repeats are bounded (L, D)."""

import asyncio

import pytest

from evenlane.engine.base import names
from evenlane.engine.base.clock import now_ns
from evenlane.engine.node.tuning import NodeTuning
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, is_lagging, topic, turns
from tests.support.until import until


async def test_clean_stop_repeats_nothing():
    """E11, D: the next owner takes over exactly the settled messages."""
    async with World() as world:
        await world.put_many(200)
        node = await world.node()
        await until(lambda: len(world.handled) == 200)
        assert await node.stop(5)
        again = await world.node()
        await world.put(id="new")
        await until(lambda: "new" in world.ids)
        assert (201, 1) == (len(world.handled), again.counters.handled)


async def test_node_stops_at_once_during_an_interrupted_takeover():
    """E7: the fence was sent, and nothing waits for the answer any more."""
    async with World() as world:
        node = await world.idle_node()
        fences = []

        def never_answered(*_record, **_options):
            fences.append(asyncio.get_running_loop().create_future())
            return fences[-1]

        node.store.append_log = never_answered
        opening = asyncio.create_task(node.take_over([0], world.next_epoch()))
        await until(lambda: len(fences) == 2)
        opening.cancel()
        await asyncio.wait([opening])
        async with asyncio.timeout(30):
            assert await node.stop(60)


async def test_crash_repeats_at_most_one_settle_interval():
    """E11, D, L: only messages in flight, or handled within the interval, are handled again."""
    async with World() as world:
        await world.put_many(400)
        node = await world.node(concurrency=4, settle_interval=0.05)
        await until(lambda: len(world.handled) >= 100)
        lane = world.busy_lane
        durable = (await world.settled(lane)).settled.watermark
        done = len(world.handled)
        await world.crash(node)
        await world.node()
        await world.all_gone()
        assert 400 == len(set(world.ids))
        assert len(world.handled) - 400 <= done - durable + 4


async def test_settled_messages_above_a_pinned_watermark_are_deleted():
    """E11, D: the settle log records them until then."""
    async with World(still=topic(state="paused"), acme=topic()) as world:
        await world.put(project="still")
        lane = world.busy_lane
        group = world.group_in(lane.partition)
        await world.put_many(300, group=group)
        node = await world.node(tuning=NodeTuning(pinned_for=0))
        await until(lambda: world.waiting() == 1, what="all messages but the pinned one to be deleted")
        assert 300 == len(world.handled)
        assert 0 == node.partitions[lane.partition].lane.removal.durable_watermark
        await world.crash(node)
        await world.node(tuning=NodeTuning(pinned_for=0))
        await world.put(id="new", group=group)
        await until(lambda: "new" in world.ids)
        assert 301 == len(world.handled)


async def test_outages_lose_and_repeat_nothing():
    """L, D."""
    async with World() as world:
        node = await world.node()
        for round_ in range(5):
            await world.put_many(50)
            world.server.disconnect(node.store)
            await turns(5 * round_)
            world.server.reconnect(node.store)
        await world.all_gone()
        assert 250 == len(world.handled)
        assert 250 == len({(m.stream, m.sequence) for m in world.handled})


async def test_lagging_settle_log_stops_dispatch():
    """D: the number of handled but unsettled messages is bounded."""
    async with World() as world:
        gate = asyncio.Event()

        async def wait(message):
            await gate.wait()
            world.handled.append(message)

        node = await world.node(wait, settle_interval=0.02)
        for n in range(100):
            world.store.put(names.lane_subject("online", 0, "acme", 0, "mid"), b"", b"%d" % n)
        await until(lambda: len(node.workers.running) == 8)
        world.server.delay_acks()
        gate.set()
        await until(lambda: is_lagging(node))
        before = len(world.handled)
        for n in range(100):
            world.store.put(names.lane_subject("online", 0, "acme", 0, "mid"), b"", b"%d" % n)
        await until(lambda: node.backlog + node.gate.occupied == 200 - before)
        await turns(100)
        assert before == len(world.handled)
        world.server.delay_acks(0)
        await world.all_gone()
        assert 200 == len(world.handled)


async def test_dispatch_stops_at_the_moment_when_a_result_is_late():
    """D: it doesn't wait for the next flush of the settle log, which is up to half a second away."""
    async with World(acme=topic(qps=200, groups=1, burst=1)) as world:
        node = await world.node(settle_interval=0.5)
        world.server.delay_acks()
        for n in range(500):
            world.store.put(names.lane_subject("online", 0, "acme", 0, "mid"), b"", b"%d" % n)
        await until(lambda: is_lagging(node))
        late_at = node.settler.late_at
        await until(lambda: now_ns() >= late_at + SECOND // 2)
        assert late_at == node.settler.late_at > max(message.chosen for message in world.handled)
        world.server.delay_acks(0)
        await world.all_gone()
        assert 500 == len(world.handled)


async def test_refused_dead_letter_keeps_the_original():
    """E13, fault 16: other projects run meanwhile, and all messages are dead-lettered once the stream accepts them."""
    async with World(bad=topic(max_attempts=1), acme=topic()) as world:
        world.server.refuse("dead.")

        async def handle(message):
            if message.project == "bad":
                raise ValueError("no")
            world.handled.append(message)

        await world.put_many(3000, project="bad")
        node = await world.node(handle)
        await until(lambda: node.queues.explain_withheld("bad"), what="the project to be withheld")
        put = await world.put_many(20)
        await until(lambda: set(put) <= set(world.ids))
        assert node.failures.pending < 1500
        assert (0, 0) == (node.counters.dead, len(world.dead()))
        world.server.accept("dead.")
        await world.all_gone(60)
        assert 3000 == len(world.dead())


async def test_retry_survives_a_crash():
    """K2, L: its copy is in the delay stream, and the next owner handles it."""
    async with World(acme=topic(backoff={"base": 0.5, "factor": 1, "jitter": 0})) as world:

        async def handle(message):
            if message.attempt == 1:
                raise ValueError("once")
            world.handled.append(message)

        await world.put_many(40)
        node = await world.node(handle)
        await until(lambda: node.counters.retried == 40)
        await world.crash(node)
        await world.node(handle)
        await world.all_gone()
        assert 40 == len(set(world.ids))


@pytest.mark.parametrize("call", ["read_log", "append_log"])
async def test_takeover_starts_over_after_an_outage(call):
    """E14, L: three times at the same call to the store, and it causes no repeats."""
    async with World() as world:
        await world.put_many(200)
        first = await world.node()
        await until(lambda: len(world.handled) == 200)
        assert await first.stop(5)
        await first.store.close()
        world.nodes.remove(first)
        await world.put_many(100)
        node = await world.idle_node()
        real, outages = getattr(node.store, call), []

        def lose_connection(*args, **options):
            if len(outages) < 3 and node.store.up.is_set():
                outages.append(call)
                world.server.disconnect(node.store)
            return real(*args, **options)

        setattr(node.store, call, lose_connection)
        taking_over = asyncio.ensure_future(node.take_over(range(CLUSTER_CONFIG.partitions), world.next_epoch()))
        for count in (1, 2, 3):
            await until(lambda count=count: len(outages) == count)
            world.server.reconnect(node.store)
        await taking_over
        await world.all_gone()
        assert 300 <= len(world.handled) <= 300 + 8
        assert 300 == len(set(world.ids))


async def test_failed_part_ends_the_node():
    """W: a defect, in the scheduler for instance, must not leave a node that looks alive and does nothing."""
    reasons = []
    async with World() as world:
        node = await world.node(on_stop=reasons.append)

        def broken(now):
            raise ZeroDivisionError("a defect")

        node.scheduler.next = broken
        await world.put()
        await until(lambda: reasons)
        assert "has failed: ZeroDivisionError: a defect" in reasons[0]
