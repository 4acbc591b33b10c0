"""The true backlog, read from the store alone: the streams minus their settle logs."""

import asyncio

from evenlane.engine.admin.backlog.peek import peek
from evenlane.engine.admin.backlog.scan import count_waiting, list_subjects, peek_stream, views, waiting
from evenlane.engine.node.tuning import Tuning
from tests.support.node.gated import gated
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, topic
from tests.support.until import until

DAY = 86_400 * SECOND


async def found(world, project="acme"):
    """(how many wait, their sequences) of each of the project's subjects."""
    subjects = await list_subjects(world.store, CLUSTER_CONFIG, project, CLUSTER_CONFIG.priorities)
    known = await views(world.store, subjects)
    counts, sequences = {}, {}
    for subject in subjects:
        view = known[subject.lane]
        counts[subject.name] = await count_waiting(world.store, subject, view)
        pages = [page async for page in waiting(world.store, subject, view)]
        sequences[subject.name] = [head.sequence for page in pages for head in page]
    return counts, sequences


async def test_what_is_settled_and_not_yet_removed_does_not_wait():
    """Pinned by its first message, a partition keeps what is settled for some seconds."""
    async with gated(acme=topic(ack_wait=60)) as world:

        async def handle(message):
            if message.priority == "high":
                await world.gate.wait()
            world.handled.append(message)

        node = await world.node(handle, concurrency=2, tuning=Tuning(pinned_for=1 << 62))
        await world.put(priority="high")
        await until(lambda: node.workers.running)
        lane = world.busy_lane
        await world.put_many(2_500)
        await until(lambda: node.counters.handled == 2_500)

        async def logged() -> bool:
            return (await peek_stream(world.store, lane)).last_settled == 2_501

        await until(logged)
        assert {1, 2_500} == set((await world.store.held(lane, "acme")).counts.values())
        assert {0, 1} == set((await found(world))[0].values())


async def test_settled_ones_among_those_that_wait_are_told_apart():
    """A failed message's copy waits in the later stream; its original is settled above a pinned watermark."""
    async with gated(acme=topic(ack_wait=60, backoff={"base": 600, "factor": 1, "jitter": 0})) as world:

        async def handle(message):
            if message.body == b"pin":
                await world.gate.wait()
            elif message.body == b"fails":
                raise ValueError
            world.handled.append(message)

        node = await world.node(handle, concurrency=2)
        await world.put(b"pin", id="pin")
        await until(lambda: node.workers.running)
        await world.put_many(20)
        await world.put(b"fails", id="fails")
        await until(lambda: node.counters.handled == 20 and node.counters.retried == 1)
        lane = world.busy_lane

        async def logged() -> bool:
            return (
                22 in (await peek_stream(world.store, lane)).settled
            )  # the pin is 1, then come 20, then the one that fails

        await until(logged)
        counts, sequences = await found(world)
        assert [1, 1] == list(counts.values())
        assert [[1], [1]] == list(sequences.values())
        (part,) = [
            part
            for part in await peek(world.store, "online", CLUSTER_CONFIG, "acme", CLUSTER_CONFIG.priorities, 10, 60.0)
            if part["messages"]
        ]
        assert [("pin", 1), ("fails", 2)] == [(message["id"], message["attempt"]) for message in part["messages"]]


async def test_a_log_that_speaks_of_another_stream_settles_nothing():
    async with World() as world:
        node = await world.node()
        await world.put_many(10)
        lane = world.busy_lane
        await until(lambda: len(world.handled) == 10)
        await world.all_gone()
        await world.crash(node)
        world.server.replace("online", lane)
        await world.put_many(3)
        counts, sequences = await found(world)
        assert ([3], [[1, 2, 3]]) == (list(counts.values()), list(sequences.values()))


async def test_delayed_ones_come_by_their_time_whatever_their_order_in_the_stream():
    async with World(acme=topic(state="paused")) as world:
        now = world.store.now()
        await asyncio.gather(*(world.put(id=f"d{n}", due=now + DAY - n * SECOND, group=n % 10) for n in range(30)))
        await world.put(id="due")
        parts = {
            part["priority"]: part
            for part in await peek(world.store, "online", CLUSTER_CONFIG, "acme", CLUSTER_CONFIG.priorities, 4, 60.0)
        }
        assert (1, 30) == (parts["mid"]["waiting"], parts["mid"]["delayed"])
        assert ["due", "d29", "d28", "d27"] == [message["id"] for message in parts["mid"]["messages"]]
