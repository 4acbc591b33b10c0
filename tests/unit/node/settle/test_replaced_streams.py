"""A store that is wiped under a node: what it knew is counted, by project, and said in one line (fault F6)."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from evenlane.engine.base.clock import now_ns
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.node.settle.replaced_streams import Replaced
from evenlane.engine.telemetry.tenants.registry import TenantRegistry
from evenlane.engine.telemetry.tenants.sampler import QueueSampler
from tests.support.log_tables import OTHERS
from tests.support.node.keyed import QUICK
from tests.support.node.world import CLUSTER_CONFIG, LANES, SECOND, World, topic
from tests.support.until import until

EVENT = "streams were replaced or rolled back: beginning anew from their first messages"


@asynccontextmanager
async def busy(*projects, **fields):
    """A node whose handlers don't return until they may, and of which each project may have one."""
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
    """What the metrics know of tenants, and what has them look, often enough to let go of silent queues."""
    known = TenantRegistry(CLUSTER_CONFIG.priorities, 20, CLUSTER_CONFIG.max_group_qps)
    sampling = QueueSampler(node, known)

    async def look():
        for _ in range(3):
            await sampling.round(now_ns())

    return known, look


async def reset(node, number=4):
    """`number` of its lanes have found out. At the end of an hour two feeds of a later stream do, one after another."""
    lanes = [lane for partition in node.partitions.values() for lane in partition.both]
    await until(lambda: number == sum(lane.generation > 0 for lane in lanes), what="the streams to be found replaced")


async def test_a_wiped_store_is_counted_by_project():
    """What waits counts, wherever; what a handler has doesn't: it ends, as void."""
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
            await reset(node)
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


async def test_the_line_comes_by_itself_and_names_twenty_projects():
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


async def test_what_is_found_a_moment_later_is_in_the_same_line():
    replaced, acme = Replaced(), Queue("acme", 0, "mid", 1, 0)
    with capture_logs() as log:
        for lane in LANES:
            replaced.note(lane, {acme: 3})
            await asyncio.sleep(0.02)
        assert [] == lines(log)
        replaced.stop()
        replaced.stop()
        assert [(4, 12)] == [(line["streams"], line["count"]) for line in lines(log)]


async def test_of_a_roll_back_what_was_cut_off_counts():
    async with busy("acme") as (world, node, _):
        await world.put_many(40)
        await until(lambda: len(node.in_flight) == 1 and node.backlog == 39)
        [running] = node.in_flight
        world.server.roll_back("online", running.lane.id, 30)
        cut_off = max(0, running.lane.high - 30)
        await reset(node, 1)
        assert cut_off == node.counters.missing > 0


@pytest.mark.parametrize("count", [1, 3])
async def test_failed_messages_of_an_ordered_topic_count(count):
    """They stay in their lane until their next attempt; a queue with nothing else is silent, and looked at again."""

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
        await reset(node)
        await look()
        assert count == node.counters.missing == sum(flow.missing for flow in known.counted.values())


async def test_nothing_is_missing_where_nothing_waited():
    async with World(acme=topic(backoff=QUICK)) as world:
        await world.put_many(20)
        node = await world.node()
        await world.all_gone()
        with capture_logs() as log:
            wipe(world)
            await reset(node)
            await node.stop(1)
        assert (0, [(0, {})]) == (node.counters.missing, [(line["count"], line["projects"]) for line in lines(log)])


async def test_the_metric_has_it_by_project():
    """The series are there before, as a rate doesn't see how one begins."""
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
        await reset(node)
        await look()
        left = {"acme": 10, "bolt": 20, "still": 1}
        left[running.project] -= 1
        assert left == {project: flow.missing for (project, _), flow in known.counted.items() if flow.missing}
