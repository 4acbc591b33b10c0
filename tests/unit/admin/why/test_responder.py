"""A node's answer to "why is this waiting?" (X8, X7), on the store in memory."""

import asyncio

import msgspec
import pytest

from evenlane.engine.admin.why.responder import QueueInspector
from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.ports import Refused
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.records.backlog_answer import Count, NodeAnswer
from evenlane.engine.proof.baselines.schedulers import PlainScheduler
from tests.support.node.gated import Clock, Later, gated, looked
from tests.support.node.world import SECOND, topic
from tests.support.until import until


class ExplainingScheduler(PlainScheduler):
    """Gives the same reason for each queue, and keeps the projects that it was asked about."""

    def __init__(self, reason):
        super().__init__()
        self.reason, self.asked = reason, set()

    def wait_reason(self, queue, _now):
        self.asked.add(queue.project)
        return self.reason


async def reasons(node, priority="mid", project="acme"):
    answer = await looked(Later(node), project)
    part = answer.parts[priority]
    return {reason: (count.groups, count.messages) for reason, count in part.reasons.items()}


async def test_handlers_busy_and_higher_priority():
    """X8."""
    async with gated() as world:
        await world.put_many(5, priority="high")
        await world.put_many(7, priority="low")
        await world.put_many(3, priority="low", group=2)
        node = await world.node(world.handle, concurrency=1, scheduler=PlainScheduler())
        await until(lambda: node.backlog == 14)
        answer = await looked(Later(node))
        assert ({"high", "low"}, 1) == (set(answer.parts), sum(part.in_flight for part in answer.parts.values()))
        high, low = answer.parts["high"], answer.parts["low"]
        assert 14 == high.waiting + low.waiting
        assert {"handlers_busy": Count(1, high.waiting)} == high.reasons
        assert low.reasons["higher_priority"].groups == 1
        assert low.reasons["handlers_busy"].groups == 1


async def test_message_that_has_just_arrived_waits_for_nothing():
    """X8: reasons of the moment are shown from one second on, those of a state at once."""
    async with gated(acme=topic(), bolt=topic(state="paused")) as world:
        await world.put_many(5)
        await world.put_many(5, project="bolt")
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 9)
        assert {} == (await looked(node)).parts["mid"].reasons
        assert {"handlers_busy"} == (await reasons(node)).keys()
        assert {"paused"} == (await looked(node, "bolt")).parts["mid"].reasons.keys()


async def test_quota_while_handlers_are_free():
    """X8."""
    async with gated(acme=topic(qps=0.01, groups=1)) as world:
        await world.put_many(5)
        node = await world.node(world.handle, concurrency=8)
        await until(lambda: node.backlog == 4 and node.workers.running)
        assert {"quota": (1, 4)} == await reasons(node)
        answer = await looked(node)
        assert (1, 4) == (answer.parts["mid"].in_flight, answer.deepest)


async def test_concurrency_of_the_topic():
    """X8."""
    async with gated(acme=topic(qps=10_000, groups=100, burst=100, concurrency=2)) as world:
        await world.put_many(10)
        node = await world.node(world.handle, concurrency=8)
        await until(lambda: len(node.workers.running) == 2)
        await until(lambda: node.backlog == 8)
        assert {"concurrency": (1, 8)} == await reasons(node)


async def test_paused_topic_and_missing_topic():
    """X8: the age of a message that isn't loaded is read from the store."""
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


async def test_copies_that_cannot_be_stored_are_a_note():
    """X8: no queue's reason covers these failed messages."""
    async with gated(Clock(), acme=topic(max_attempts=1), other=topic(max_attempts=1)) as world:

        async def fail(_message):
            raise ValueError

        world.server.refuse("dead.", Refused("maximum messages exceeded"))
        await world.put_many(3)
        node = await world.node(fail)
        why = "maximum messages exceeded"
        sentence = f"3 of its failed messages stay: their retries or dead letters can't be stored ({why})"

        async def is_noted():
            return [sentence] == (await looked(node)).notes

        await until(is_noted)
        assert [] == (await looked(node, "other")).notes
        world.server.accept("dead.")
        await until(lambda: node.failures.pending == 0)
        assert [] == (await looked(node)).notes


async def test_age_is_that_of_the_queue_head():
    """X8."""
    clock = Clock()
    async with gated(clock) as world:
        await world.put_many(1)
        clock.at += 5 * SECOND
        await world.put_many(300)
        node = await world.node(world.handle, concurrency=1, limits=MemoryBudget(read_ahead=4, index=20))
        await until(lambda: node.backlog == 300 and node.queues.of_project("acme")[0].ready)
        clock.at += 2 * SECOND
        assert 2.0 == (await looked(node)).parts["mid"].oldest_s


async def test_delayed_messages_are_counted_with_the_next_due_time():
    """X8."""
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


async def test_age_of_a_delayed_message_counts_from_its_due_time():
    """X8: whether it is loaded or not."""
    clock = Clock()
    async with gated(clock, acme=topic(), still=topic(state="paused")) as world:
        for project in ("acme", "still"):
            await world.put(due=clock.at + 100 * SECOND, priority="low", project=project)
        await world.put(priority="high")
        clock.at += 103 * SECOND
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 2 and any(queue.ready for queue in node.queues.of_project("acme")))
        assert 3.0 == (await looked(node)).parts["low"].oldest_s
        assert 3.0 == (await looked(node, "still")).parts["low"].oldest_s


@pytest.mark.parametrize("reason", ["headroom", "fairness", "ordered", "endpoint", "no_owner"])
async def test_reason_of_the_scheduler_is_passed_on(reason):
    """X8."""
    async with gated() as world:
        await world.put_many(4)
        await world.put_many(3, group=1)
        node = await world.node(world.handle, concurrency=1, scheduler=ExplainingScheduler(reason))
        await until(lambda: node.backlog == 6)
        assert {reason: (2, 6)} == await reasons(node)


async def test_queues_of_other_projects_are_not_examined():
    """X8."""
    async with gated(acme=topic(), bolt=topic()) as world:
        for group in range(5):
            await world.put_many(2, project="bolt", group=group)
        await world.put_many(3)
        scheduler = ExplainingScheduler("quota")
        node = await world.node(world.handle, concurrency=1, scheduler=scheduler)
        await until(lambda: node.backlog == 12)
        scheduler.asked.clear()
        answer = await looked(node)
        assert ({"acme"}, 1) == (scheduler.asked, answer.queues)


async def test_unknown_project_is_no_error():
    async with gated() as world:
        node = await world.node()
        answer = await looked(node, "nobody")
        assert (0, {}, 0) == (answer.queues, answer.parts, answer.deepest)


async def test_reasons_that_stop_the_whole_node_are_notes():
    """X8: no queue's reason covers them."""
    async with gated() as world:
        await world.put_many(10)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 9)
        assert [] == (await looked(node)).notes
        node.settler.late_at, node.failures.crowded = 0, True
        node.trust(0)
        partition = next(iter(node.partitions.values()))
        partition.opened = False
        lane = node.partitions[node.queues.of_project("acme")[0].partition].lane
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
        node.settler.late_at, node.failures.crowded = now_ns() + 3600 * SECOND, False
        lane.end_catch_up(lane.position)
        partition.opened = True


async def test_only_ages_are_missing_without_the_store():
    """X8: counts and reasons are in memory."""
    async with gated(acme=topic(state="paused")) as world:
        await world.put_many(5)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 5)
        world.server.disconnect(node.store)
        answer = await looked(node)
        assert (5, None) == (answer.parts["mid"].waiting, answer.parts["mid"].oldest_s)
        assert "it has no connection to its store" in answer.notes


async def test_lost_topic_is_in_the_answer_with_all_its_fields():
    """F2, X8: also without a backlog, and over the wire."""
    kept = topic(qps=7.0, push={"url": "https://acme.example/hook"})
    async with gated(acme=kept) as world:
        inspector = QueueInspector(await world.node(), 0.0, lost={"acme": kept}.get)
        answers = [msgspec.json.encode(await inspector.inspect(project)) for project in ("acme", "other")]
        assert [kept, None] == [msgspec.json.decode(each, type=NodeAnswer).lost for each in answers]


async def test_large_project_is_examined_in_slices():
    """X8: 800 groups of 3 priorities don't block the event loop."""
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
