"""Each wait reason in its situation, on a real node with its own scheduler (X8)."""

from contextlib import asynccontextmanager

import pytest

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.message.handler_exceptions import Pause
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.node.gated import Clock, Later, gated, looked
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, topic, turns
from tests.support.until import until

BOUND = {"qps": 10_000, "groups": 100, "burst": 100}


@asynccontextmanager
async def held(*projects, **topics):
    """A world in which only handlers of these projects wait for the gate."""
    async with gated(**(topics or {project: topic() for project in projects})) as world:

        async def handle(message):
            if message.project in projects:
                await world.gate.wait()
            world.handled.append(message)

        world.handle = handle
        yield world


def why(node, project="acme", priority="mid"):
    """Return the reasons of the project's heads."""
    queues = [queue for queue in node.queues.of_project(project) if queue.backlog and queue.priority == priority]
    return {node.wait_rules.reason(queue) for queue in queues}


async def waited(node):
    """Return the waiting seconds by (project, priority, reason) if nothing changes for 7 s."""
    tenants = TenantRegistry(CLUSTER_CONFIG.priorities, 10, CLUSTER_CONFIG.max_group_qps)
    sampler, now = QueueSampler(node, tenants), now_ns()
    await sampler.round(now)
    await sampler.round(now + 7 * SECOND)
    return {(key.label, CLUSTER_CONFIG.priorities[key.band], key.reason): s for key, s in tenants.waits.seconds.items()}


async def check(node, reason, *, project="acme", priority="mid", groups=1):
    """Check that queues, `why` and metrics give this reason, and no other, for the priority."""
    assert {reason} == why(node, project, priority)
    part = (await looked(Later(node), project)).parts[priority]
    assert [(reason, groups)] == [(each, count.groups) for each, count in part.reasons.items()]
    seconds = {key[2]: each for key, each in (await waited(node)).items() if key[:2] == (project, priority)}
    assert {reason: pytest.approx(7.0 * groups)} == seconds


async def test_quota():
    """X8: that of the topic, or of a group that may not borrow."""
    slow, alone = topic(qps=0.01, groups=1), topic(qps=0.1, groups=10, borrow=False)
    async with held(acme=slow, bolt=alone) as world:
        await world.put_many(5)
        await world.put_many(5, project="bolt")
        node = await world.node(world.handle)
        await until(lambda: len(world.handled) == 2)
        await check(node, "quota")
        await check(node, "quota", project="bolt")


async def test_quota_of_a_nodes_share():
    """X8: a node with half of the groups has half of the rate."""
    async with held(acme=topic(qps=0.02, groups=2)) as world:
        await world.put_many(5)
        node = await world.node(world.handle)
        await until(lambda: len(world.handled) == 1)
        (queue,) = [queue for queue in node.queues.of_project("acme") if queue.backlog]
        other = next(number for number in node.partitions if number != queue.partition)
        node.owned.stop_partition(other)
        await turns()
        await check(node, "quota")


async def test_concurrency():
    """X8: slots are free, and the topic has its maximum in flight."""
    async with held("acme", acme=topic(**BOUND, concurrency=2)) as world:
        await world.put_many(10)
        node = await world.node(world.handle)
        await until(lambda: len(node.workers.running) == 2 and node.backlog == 8)
        await check(node, "concurrency")


async def test_headroom():
    """X8, X9: a free slot is kept for a tenant that was active a moment ago."""
    async with held("acme", acme=topic(weight=1), light=topic(weight=1)) as world:
        await world.put_many(1, project="light")
        node = await world.node(world.handle, concurrency=8)
        await until(lambda: world.handled)
        await world.put_many(20)
        await until(lambda: len(node.workers.running) == 7)
        await turns()
        assert 13 == node.backlog
        await check(node, "headroom")


async def test_higher_priority_and_handlers_busy():
    """X8: the only tenant takes all slots, and its lower priority waits for the higher one."""
    async with held("acme") as world:
        await world.put_many(3, priority="high")
        await world.put_many(3, priority="low")
        await world.put_many(3, priority="low", group=2)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 8)
        await check(node, "handlers_busy", priority="high")
        assert {"higher_priority", "handlers_busy"} == why(node, priority="low")


async def test_fairness():
    """X8: all slots are busy, and the tenant has its share of them."""
    async with held("acme", "bolt") as world:
        for project in ("acme", "bolt"):
            await world.put_many(5, project=project)
        node = await world.node(world.handle, concurrency=2)
        await until(lambda: {message.project for message in node.workers.running} == {"acme", "bolt"})
        assert 8 == node.backlog
        await check(node, "fairness")


async def test_not_due():
    """X8: all waiting messages are delayed."""
    clock = Clock()
    async with gated(clock) as world:
        await world.put(due=clock.at + 50 * SECOND)
        await world.put(due=clock.at + 70 * SECOND, group=2)
        node = await world.node(world.handle)
        await until(lambda: node.backlog == 2)
        assert ({"not_due": 2}) == {
            reason: count.groups for reason, count in (await looked(node)).parts["mid"].reasons.items()
        }
        assert {("acme", "mid", "not_due"): pytest.approx(14.0)} == await waited(node)


async def test_ordered():
    """X8: behind an earlier message of the key."""
    async with held("acme", acme=topic(ordered=True, groups=1)) as world:
        for _ in range(3):
            await world.put(headers={"Evenlane-Key": "k"})
        node = await world.node(world.handle)
        await until(lambda: any(queue.order and queue.order.waiting == 2 for queue in node.queues.of_project("acme")))
        await check(node, "ordered")


async def test_ordered_while_the_key_order_is_full():
    """X8: behind messages of any key, as no more of them may be set aside."""
    async with held("acme", acme=topic(ordered=True, groups=1)) as world:
        for _ in range(9):
            await world.put(headers={"Evenlane-Key": "k"})
        node = await world.node(world.handle, limits=MemoryBudget(index=2))
        await until(lambda: any(queue.order and queue.order.full for queue in node.queues.of_project("acme")))
        await until(lambda: not any(queue.loading for queue in node.queues.of_project("acme")))
        await check(node, "ordered")


async def test_endpoint():
    """X8, E17: the handler asked for a pause."""
    async with World(acme=topic()) as world:

        async def handle(message):
            raise Pause(3600, "too many")

        await world.put_many(3)
        node = await world.node(handle)
        await until(lambda: node.queues.explain_withheld("acme") == "endpoint" and node.backlog == 3)
        await check(node, "endpoint")


@pytest.mark.parametrize("topics", [{"acme": topic(state="paused")}, {"other": topic()}], ids=["paused", "no topic"])
async def test_paused(topics):
    """X8: the topic is paused, or there is none."""
    async with World(**topics) as world:
        await world.put_many(3)
        await world.put_many(2, group=1)
        node = await world.node()
        await until(lambda: node.backlog == 5)
        await check(node, "paused", groups=2)


async def test_paused_while_copies_cannot_be_stored():
    async with held("acme") as world:
        await world.put_many(5)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 4)
        node.withheld.withhold("acme", "paused", True)
        await check(node, "paused")


async def test_no_owner_while_the_lease_is_in_doubt():
    """X8: the node may no longer act as an owner, and another node may not yet."""
    async with held("acme") as world:
        await world.put_many(5)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 4)
        node.trust(0)
        await check(node, "no_owner")
        assert any("lease" in note for note in (await looked(node)).notes)


async def test_no_owner_during_a_takeover():
    async with held("acme") as world:
        await world.put_many(5)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 4)
        (queue,) = [queue for queue in node.queues.of_project("acme") if queue.backlog]
        node.lanes.remove(queue.partition)
        assert {"no_owner"} == why(node)


async def test_messages_handled_at_once_have_no_waiting_time():
    """X8."""
    async with World(acme=topic()) as world:
        await world.put_many(50)
        node = await world.node()
        await world.all_gone()
        assert {} == await waited(node)


async def test_lagging_settle_log_is_a_note():
    """X8: the node starts nothing meanwhile; the queues keep their own reasons."""
    async with held("acme") as world:
        await world.put_many(5)
        node = await world.node(world.handle, concurrency=1)
        await until(lambda: node.backlog == 4)
        node.settler.late_at = 0
        answer = await looked(Later(node))
        node.settler.late_at = now_ns() + 3600 * SECOND
        assert ["handlers_busy"] == list(answer.parts["mid"].reasons)
        assert any("settle log lags" in note for note in answer.notes)


async def test_head_that_only_the_settle_log_holds_up_has_no_reason():
    """X8: handlers are free, so the note alone explains why nothing starts."""
    async with World(acme=topic()) as world:
        node = await world.node()
        node.settler.late_at = 0
        await world.put_many(5)
        await until(lambda: node.backlog == 5)
        answer = await looked(node)
        node.settler.late_at = now_ns() + 3600 * SECOND
        assert {} == answer.parts["mid"].reasons
        assert any("settle log lags" in note for note in answer.notes)
