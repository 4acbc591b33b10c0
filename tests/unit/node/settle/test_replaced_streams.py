"""A store that is wiped under a node: lost messages are counted by project, and logged in one line (F6)."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.node.settle.replaced_streams import ReplacedStreams
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.log_tables import OTHERS
from tests.support.node.keyed import QUICK
from tests.support.node.world import CLUSTER_CONFIG, LANES, SECOND, World, topic, turns
from tests.support.until import until

EVENT = "streams were replaced or rolled back: beginning anew from their first messages"


@asynccontextmanager
async def busy(*projects, **fields):
    """A node with one slot, whose handlers wait for the event."""
    go = asyncio.Event()
    async with World(**{project: topic(**fields) for project in projects}) as world:

        async def handle(message):
            await go.wait()
            world.handled.append(message)

        yield world, await world.node(handle, concurrency=1), go
        go.set()


def lines(log):
    found = [line for line in log if line["event"] == EVENT]
    [documented] = [line for line in OTHERS if line.event == EVENT]
    for line in found:
        assert ("warning", documented.fields) == (line["log_level"], frozenset(line) - {"event", "log_level"})
    return found


def wipe(world):
    for lane in LANES:
        world.server.replace("online", lane)


def rounds_of(node):
    """The metrics of projects, and a function that samples until silent queues are released."""
    known = TenantRegistry(CLUSTER_CONFIG.priorities, 20, CLUSTER_CONFIG.max_group_qps)
    sampling = QueueSampler(node, known)

    async def look():
        for _ in range(3):
            await sampling.round(now_ns())

    return known, look


async def until_reset(node, number=4):
    """Wait until `number` lanes of the node have noticed the replacement."""
    lanes = [lane for partition in node.partitions.values() for lane in partition.lanes]
    await until(lambda: number == sum(lane.generation > 0 for lane in lanes), what="the streams to be found replaced")


async def test_lost_messages_are_logged_by_project():
    """Waiting messages count. One that runs doesn't: its result is stale."""
    async with busy("acme", "bolt") as (world, node, go):
        await world.put_many(40, project="acme")
        await world.put_many(7, project="acme", due=world.store.now() + 240 * SECOND)
        await world.put_many(5, project="bolt")
        await until(lambda: node.backlog + len(node.in_flight) == 52 and node.in_flight)
        [running] = node.in_flight
        left = {"acme": 47, "bolt": 5}
        left[running.project] -= 1
        with capture_logs() as log:
            wipe(world)
            await until_reset(node)
            assert (51, 0) == (node.counters.missing, node.backlog)
            new = await world.put_many(3, project="acme")
            go.set()
            await until(lambda: set(new) <= set(world.ids))
            await world.all_gone()
            await node.stop(1)
        assert (51, 1) == (node.counters.missing, node.counters.void)
        [entry] = lines(log)
        assert (4, [0, 1], 51, left, 0) == tuple(
            entry[field] for field in ("streams", "partitions", "count", "projects", "others")
        )


async def test_line_about_lost_messages_has_twenty_projects():
    names = [f"p{number}" for number in range(25)]
    async with busy(*names) as (world, node, _):
        for number, name in enumerate(names):
            await world.put_many(2 + number, project=name)
        await until(lambda: node.backlog + len(node.in_flight) == 350 and node.in_flight)
        with capture_logs() as log:
            wipe(world)
            await until(lambda: lines(log), what="the line")
        [entry] = lines(log)
        assert (349, 20, "p24") == (entry["count"], len(entry["projects"]), next(iter(entry["projects"])))
        assert 349 == sum(entry["projects"].values()) + entry["others"]


async def test_streams_replaced_together_are_logged_in_one_line():
    replaced, acme = ReplacedStreams(), Queue("acme", 0, "mid", 1, 0)
    with capture_logs() as log:
        for lane in LANES:
            replaced.note(lane, {acme: 3})
            await turns()
        assert [] == lines(log)
        replaced.stop()
        replaced.stop()
        assert [(4, 12)] == [(line["streams"], line["count"]) for line in lines(log)]


async def test_messages_lost_by_a_rollback_count():
    async with busy("acme") as (world, node, _):
        await world.put_many(40)
        await until(lambda: len(node.in_flight) == 1 and node.backlog == 39)
        [running] = node.in_flight
        world.server.roll_back("online", running.lane.id, 30)
        cut_off = max(0, running.lane.high - 30)
        await until_reset(node, 1)
        assert cut_off == node.counters.missing > 0


@pytest.mark.parametrize("count", [1, 3])
async def test_failed_messages_of_an_ordered_topic_count(count):
    """They stay in their lane until their next attempt. A queue with no other messages is silent, and sampled again."""

    async def fail(_message):
        raise ValueError("again")

    async with World(acme=topic(ordered=True, backoff={"base": 600, "factor": 1, "jitter": 0})) as world:
        for _ in range(count):
            await world.put(headers={"Evenlane-Key": "k"})
        node = await world.node(fail)
        await until(lambda: node.counters.failed == 1 and not node.in_flight)
        known, look = rounds_of(node)
        await look()
        wipe(world)
        await until_reset(node)
        await look()
        assert count == node.counters.missing == sum(flow.missing for flow in known.counted.values())


async def test_replaced_empty_streams_count_no_messages():
    async with World(acme=topic(backoff=QUICK)) as world:
        await world.put_many(20)
        node = await world.node()
        await world.all_gone()
        with capture_logs() as log:
            wipe(world)
            await until_reset(node)
            await node.stop(1)
        assert (0, [(0, {})]) == (node.counters.missing, [(line["count"], line["projects"]) for line in lines(log)])


async def test_metric_counts_lost_messages_by_project():
    """Its series exist before, as a rate doesn't see the first value of a series."""
    async with busy("acme", "bolt", "still") as (world, node, _):
        await world.put_many(10, project="acme")
        await world.put_many(20, project="bolt")
        await world.put(project="still", due=world.store.now() + 240 * SECOND)
        await until(lambda: node.backlog + len(node.in_flight) == 31 and node.in_flight)
        known, look = rounds_of(node)
        await look()
        before = {place: flow.missing for place, flow in known.counted.items()}
        assert {"acme", "bolt"} <= {project for project, _ in before}
        assert {0} == set(before.values())
        [running] = node.in_flight
        wipe(world)
        await until_reset(node)
        await look()
        left = {"acme": 10, "bolt": 20, "still": 1}
        left[running.project] -= 1
        assert left == {project: flow.missing for (project, _), flow in known.counted.items() if flow.missing}
