"""What a node answers to "why is this waiting?" (X8, X7), on the in-memory store."""

import asyncio

import msgspec
import pytest

from evenlane.engine.admin.why.responder import QueueInspector
from evenlane.engine.core.ports import Refused
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.stats.backlog_tally import Count, NodeAnswer
from evenlane.engine.proof.baselines.schedulers import PlainScheduler
from tests.support.node.gated import Clock, gated, looked
from tests.support.node.world import SECOND, topic
from tests.support.until import until


async def reasons(node, priority="mid", project="acme"):
    answer = await looked(node, project)
    part = answer.parts[priority]
    return {reason: (count.groups, count.messages) for reason, count in part.reasons.items()}


async def test_busy_handlers_and_higher_priorities():
    """X8: what waits for a handler, and what waits for its own group's higher priority."""
    async with gated() as world:
        await world.put_many(5, priority="high")
        await world.put_many(7, priority="low")
        await world.put_many(3, priority="low", group=2)
        node = await world.node(world.handle, concurrency=1, scheduler=PlainScheduler())
        await until(lambda: node.backlog == 14)
        answer = await looked(node)
        assert ({"high", "low"}, 1) == (set(answer.parts), sum(part.in_flight for part in answer.parts.values()))
        high, low = answer.parts["high"], answer.parts["low"]
        assert 14 == high.waiting + low.waiting
        assert {"handlers_busy": Count(1, high.waiting)} == high.reasons
        assert low.reasons["higher_priority"].groups == 1
        assert low.reasons["handlers_busy"].groups == 1


async def test_quota_used_up():
    """X8: handlers are free, and the topic's rate is not."""
    async with gated(acme=topic(qps=0.01, groups=1)) as world:
        await world.put_many(5)
        node = await world.node(world.handle, concurrency=8)
        await until(lambda: node.backlog == 4 and node.workers.running)
        assert {"quota": (1, 4)} == await reasons(node)
        answer = await looked(node)
        assert (1, 4) == (answer.parts["mid"].in_flight, answer.deepest)


async def test_concurrency_used_up():
    """X8: the topic has as many in flight as it may."""
    async with gated(acme=topic(qps=10_000, groups=100, burst=100, concurrency=2)) as world:
        await world.put_many(10)
        node = await world.node(world.handle, concurrency=8)
        await until(lambda: len(node.workers.running) == 2)
        await until(lambda: node.backlog == 8)
        assert {"concurrency": (1, 8)} == await reasons(node)


async def test_paused_and_without_a_topic():
    """X8: both wait for a person; the age of what is not at hand is read from the store."""
    clock = Clock()
    async with gated(clock, acme=topic(state="paused")) as world:
        for group in range(4):
            await world.put_many(3, group=group)
            clock.at += SECOND
        await world.put_many(2, project="nobody", priority="low")
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 14)
        clock.at += 6 * SECOND
        assert {"paused": (4, 12)} == await reasons(node)
        assert {"paused": (1, 2)} == await reasons(node, "low", "nobody")
        answer = await looked(node)
        assert (12, 10.0, 3) == (answer.parts["mid"].waiting, answer.parts["mid"].oldest_s, answer.deepest)
        assert [] == answer.notes


async def test_failed_messages_whose_copies_find_no_room_are_told():
    """X8: they wait for no turn, and yet they are not done."""
    async with gated(Clock(), acme=topic(max_attempts=1), other=topic(max_attempts=1)) as world:

        async def fail(_message):
            raise ValueError

        world.server.refuse("dead.", Refused("maximum messages exceeded"))
        await world.put_many(3)
        node = await world.node(fail)
        why = "maximum messages exceeded"
        sentence = f"3 of its failed messages stay: their retries or dead letters can't be stored ({why})"

        async def reported():
            return [sentence] == (await looked(node)).notes

        await until(reported)
        assert [] == (await looked(node, "other")).notes
        world.server.accept("dead.")
        await until(lambda: node.failures.pending == 0)
        assert [] == (await looked(node)).notes


async def test_oldest_at_hand_and_oldest_in_the_index():
    """X8: the age is that of the queue's head, wherever it is."""
    clock = Clock()
    async with gated(clock) as world:
        await world.put_many(1)
        clock.at += 5 * SECOND
        await world.put_many(300)
        node = await world.node(world.handle, concurrency=1, limits=MemoryBudget(read_ahead=4, index=20))
        await until(lambda: node.backlog == 300 and node.queues.of("acme")[0].ready)
        clock.at += 2 * SECOND
        assert 2.0 == (await looked(node)).parts["mid"].oldest_s


async def test_not_due():
    """X8: delayed messages are counted apart, with the time at which the next one is due."""
    clock = Clock()
    async with gated(clock) as world:
        for delay in (50, 20, 70):
            await world.put(due=clock.at + delay * SECOND)
        await world.put(due=clock.at + 3_000 * SECOND, group=2)
        await world.put(due=clock.at + 40 * SECOND, priority="low")
        await world.put(due=clock.at + 1 * SECOND, project="other")
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 6)
        answer = await looked(node)
        part = answer.parts["mid"]
        assert (0, 4, 20.0) == (part.waiting, part.delayed, part.next_due_s)
        assert {"not_due": Count(2, 4)} == part.reasons
        assert (1, 40.0) == (answer.parts["low"].delayed, answer.parts["low"].next_due_s)


async def test_a_delayed_one_is_as_old_as_it_is_due():
    """X8: what was put long ago and has just become due has just begun to wait, at hand or not."""
    clock = Clock()
    async with gated(clock, acme=topic(), still=topic(state="paused")) as world:
        for project in ("acme", "still"):
            await world.put(due=clock.at + 100 * SECOND, priority="low", project=project)
        await world.put(priority="high")
        clock.at += 103 * SECOND
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 2 and any(queue.ready for queue in node.queues.of("acme")))
        assert 3.0 == (await looked(node)).parts["low"].oldest_s
        assert 3.0 == (await looked(node, "still")).parts["low"].oldest_s


@pytest.mark.parametrize("reason", ["headroom", "fairness", "ordered", "endpoint", "no_owner"])
async def test_what_the_scheduler_says_is_told(reason, monkeypatch):
    """X8: in the scheduler's own words."""
    async with gated() as world:
        await world.put_many(4)
        await world.put_many(3, group=1)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 6)
        monkeypatch.setattr(node.scheduler, "why", lambda queue, now: reason)
        assert {reason: (2, 6)} == await reasons(node)


async def test_nothing_of_others_is_looked_at(monkeypatch):
    """X8: a question about one project costs nothing for those of all others."""
    async with gated(acme=topic(), bolt=topic()) as world:
        for group in range(5):
            await world.put_many(2, project="bolt", group=group)
        await world.put_many(3)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 12)
        seen = []
        monkeypatch.setattr(node.wait_rules, "reason", lambda queue: seen.append(queue.project))
        answer = await looked(node)
        assert ({"acme"}, 1) == (set(seen), answer.queues)


async def test_unknown_project_is_no_error():
    async with gated() as world:
        node = await world.node()
        answer = await looked(node, "nobody")
        assert (0, {}, 0) == (answer.queues, answer.parts, answer.deepest)


async def test_what_holds_the_whole_node_up_is_a_note():
    """X8: no reason of a queue says it, so the node does."""
    async with gated() as world:
        await world.put_many(10)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 9)
        assert [] == (await looked(node)).notes
        node.settler.lagging = node.failures.crowded = True
        node.trust(0)
        partition = next(iter(node.partitions.values()))
        partition.opened = False
        lane = node.partitions[node.queues.of("acme")[0].partition].lane
        lane.expect_backlog({}, lane.position)
        notes = " / ".join((await looked(node)).notes)
        for part in (
            "settle log lags",
            "retries and dead letters",
            "lease",
            "taking over 1 partition:",
            "backlog of 1 partition:",
        ):
            assert part in notes
        node.settler.lagging = node.failures.crowded = False
        lane.caught_up(lane.position)
        partition.opened = True


async def test_a_store_that_is_away_costs_the_age_alone():
    """X8: counts and reasons are in memory."""
    async with gated(acme=topic(state="paused")) as world:
        await world.put_many(5)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 5)
        world.server.disconnect(node.store)
        answer = await looked(node)
        assert (5, None) == (answer.parts["mid"].waiting, answer.parts["mid"].oldest_s)
        assert "it has no connection to its store" in answer.notes


async def test_rates_since_the_last_question():
    """X7: what arrived, was handled, and failed, between two questions."""
    async with gated(acme=topic(qps=1000, burst=1000, max_attempts=1)) as world:

        async def handle(message):
            if message.body == b"bad":
                raise ValueError

        node = await world.node(handle)
        looking = QueueInspector(node, 0.0)
        await world.put(b"first")
        await until(lambda: node.counters.handled == 1)
        await looking.at("acme")
        for body in (b"good", b"bad", b"good"):
            await world.put(body)
        await world.put(project="other")
        await until(lambda: (node.counters.handled, node.counters.dead) == (3, 1))
        rates = (await looking.at("acme")).rates
        counts = [rate * rates.seconds for rate in (rates.arriving, rates.handled, rates.failed)]
        assert pytest.approx([3, 2, 1]) == counts


async def test_a_topic_that_etcd_has_lost_is_told_with_all_its_fields():
    """F2, X8: also where nothing of it waits, and over the wire."""
    kept = topic(qps=7.0, push={"url": "https://acme.example/hook"})
    async with gated(acme=kept) as world:
        looking = QueueInspector(await world.node(), 0.0, lost={"acme": kept}.get)
        reported = [msgspec.json.encode(await looking.at(project)) for project in ("acme", "other")]
        assert [kept, None] == [msgspec.json.decode(each, type=NodeAnswer).lost for each in reported]


async def test_another_topic_begins_another_measurement():
    """X7: how fast it went under other rules says nothing."""
    async with gated(acme=topic(state="paused")) as world:
        await world.put_many(5)
        node = await world.node()
        await until(lambda: node.backlog == 5)
        looking = QueueInspector(node, 0.0)
        await looking.at("acme")
        fed = looking._streams()
        before = looking._history("acme", fed)
        assert before is looking._history("acme", fed)
        world.topics["acme"] = topic()
        node.topic_changed("acme", world.topics["acme"])
        assert before is not looking._history("acme", fed)


async def rates_if(node, then):
    """What is told if `then` happens while it is measured; and what by the next question."""
    looking = QueueInspector(node, 0.0)
    sample, samples = looking._sample, []

    async def sampled(project):
        if len(samples) == 1:
            await then()
        samples.append(await sample(project))
        return samples[-1]

    looking._sample = sampled
    return (await looking.at("acme")).rates, (await looking.at("acme")).rates


async def test_a_take_over_is_no_arrival():
    """X7, fault 1: a backlog that comes in with a partition has been put long ago."""
    async with gated(acme=topic(state="paused")) as world:
        for group in range(4):
            await world.put_many(5, group=group)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 20)
        gone = node.queues.of("acme")[0].partition
        epoch = node.partitions[gone].lane.epoch
        node.owned.stop_partition(gone)
        await node.owned.hand_off(gone, epoch)
        assert node.backlog < 20

        async def taken_over():
            await node.take_over([gone], epoch + 1)
            await until(lambda: node.backlog == 20)

        first, then = await rates_if(node, taken_over)
        assert (False, True, 0.0) == (first.known, then.known, then.arriving)


async def test_a_partition_that_goes_takes_its_counts_along():
    """X7: and they aren't told as what came and went."""
    async with gated() as world:
        for group in range(4):
            await world.put_many(5, group=group)
        node = await world.node()
        await until(lambda: node.counters.handled == 20)

        async def gone():
            node.owned.stop_partition(next(iter(node.partitions)))

        first, then = await rates_if(node, gone)
        assert (False, 0.0, 0.0) == (first.known, then.arriving, then.handled)


async def test_rates_are_not_told_before_the_backlog_is_in():
    """X7, fault 1: neither while it comes in nor for a while after, in which overdue messages do."""
    async with gated(acme=topic(state="paused")) as world:
        await world.put_many(5)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 5)
        assert not (await QueueInspector(node, 600.0).at("acme")).rates.known
        looking = QueueInspector(node, 0.0)
        lane = node.partitions[node.queues.of("acme")[0].partition].lane
        lane.position -= 1
        assert not (await looking.at("acme")).rates.known
        lane.position += 1
        assert (await looking.at("acme")).rates.known


async def test_expired_and_retried_count_as_leaving_and_arriving():
    """X7: a retry leaves the backlog and comes back."""
    async with gated() as world:

        async def handle(message):
            if message.attempt == 1:
                raise ValueError

        node = await world.node(handle)
        await world.put()
        await until(lambda: node.counters.handled == 1)
        (queue,) = node.queues.of("acme")
        assert (2, 1, 1) == (queue.stats.arrived, queue.stats.handled, queue.stats.failed)


async def test_a_large_project_is_looked_at_in_slices():
    """X8: 800 groups of 3 priorities don't hold the event loop."""
    async with gated(acme=topic(qps=40_000, groups=800)) as world:
        for group in range(800):
            for priority in ("high", "mid", "low"):
                await world.put(group=group, priority=priority)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 2_399)
        turns = 0

        async def count():
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count())
        answer = await looked(node)
        counting.cancel()
        assert (2_400, 2_399) == (answer.queues, sum(part.waiting for part in answer.parts.values()))
        assert turns >= 3 * 2_400 // 200
