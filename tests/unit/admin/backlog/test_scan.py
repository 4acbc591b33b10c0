"""The true backlog, read from the store alone: streams minus their settle logs."""

import asyncio

from evenlane.engine.admin.backlog.peek import SHOWN_BYTES, list_next
from evenlane.engine.admin.backlog.scan import count_waiting, iter_waiting, list_subjects, read_lane_view, views
from evenlane.engine.node.tuning import NodeTuning
from tests.support.node.gated import gated
from tests.support.node.world import CLUSTER_CONFIG, SECOND, World, topic
from tests.support.until import until

DAY = 86_400 * SECOND


async def found(world, project="acme"):
    """Return the number of waiting messages, and their sequences, by subject of the project."""
    subjects = await list_subjects(world.store, CLUSTER_CONFIG, project, CLUSTER_CONFIG.priorities)
    known = await views(world.store, subjects)
    counts, sequences = {}, {}
    for subject in subjects:
        view = known[subject.lane]
        counts[subject.name] = await count_waiting(world.store, subject, view)
        pages = [page async for page in iter_waiting(world.store, subject, view)]
        sequences[subject.name] = [head.sequence for page in pages for head in page]
    return counts, sequences


async def peeked(world, limit):
    """Return the project's parts by priority."""
    parts = await list_next(world.store, "online", CLUSTER_CONFIG, "acme", CLUSTER_CONFIG.priorities, limit, 60.0)
    return {part["priority"]: part for part in parts}


async def test_settled_messages_in_the_stream_do_not_wait():
    """Pinned by its first message, a lane keeps settled messages for some seconds."""
    async with gated(acme=topic(ack_wait=60)) as world:

        async def handle(message):
            if message.priority == "high":
                await world.gate.wait()
            world.handled.append(message)

        node = await world.node(handle, concurrency=2, tuning=NodeTuning(pinned_for=1 << 62))
        await world.put(priority="high")
        await until(lambda: node.workers.running)
        lane = world.busy_lane
        await world.put_many(2_500)
        await until(lambda: node.counters.handled == 2_500)

        async def is_logged() -> bool:
            return (await read_lane_view(world.store, lane)).last_settled == 2_501

        await until(is_logged)
        assert {1, 2_500} == set((await world.store.count_by_subject(lane, "acme")).counts.values())
        assert {0, 1} == set((await found(world))[0].values())


async def test_settled_original_of_a_waiting_copy_does_not_wait():
    """A failed message's copy waits in the delay stream. Its original is settled above a pinned watermark."""
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
        failed = 22  # after the pin and 20 others

        async def is_logged() -> bool:
            return failed in (await read_lane_view(world.store, lane)).settled

        await until(is_logged)
        counts, sequences = await found(world)
        assert [1, 1] == list(counts.values())
        assert [[1], [1]] == list(sequences.values())
        (part,) = [part for part in (await peeked(world, 10)).values() if part["messages"]]
        assert [("pin", 1), ("fails", 2)] == [(message["id"], message["attempt"]) for message in part["messages"]]


async def test_settle_log_of_another_stream_settles_nothing():
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


async def test_peek_lists_delayed_messages_by_due_time():
    async with World(acme=topic(state="paused")) as world:
        now = world.store.now()
        await asyncio.gather(*(world.put(id=f"d{n}", due=now + DAY - n * SECOND, group=n % 10) for n in range(30)))
        await world.put(id="due")
        part = (await peeked(world, 4))["mid"]
        assert (1, 30) == (part["waiting"], part["delayed"])
        assert ["due", "d29", "d28", "d27"] == [message["id"] for message in part["messages"]]


async def test_peek_shows_the_beginning_of_a_body():
    """It is cut between characters, and is base64 if it isn't UTF-8."""
    shown = {
        b"": {"body_start": ""},
        b"x" * 200: {"body_start": "x" * SHOWN_BYTES},
        b"\xff": {"body_start_base64": "/w=="},
        b"x" * (SHOWN_BYTES - 1) + b"\xc3\xa4": {"body_start": "x" * (SHOWN_BYTES - 1)},
        b"x" * (SHOWN_BYTES - 1) + b"\xc3": {"body_start_base64": "eHh4" * 26 + "eMM="},
    }
    async with World(acme=topic(state="paused")) as world:
        for body in shown:
            await world.put(body)
        messages = (await peeked(world, 10))["mid"]["messages"]
    assert [*shown.values()] == [
        {field: value for field, value in message.items() if field.startswith("body_start")} for message in messages
    ]
