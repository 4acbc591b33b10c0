"""E11: positions on real servers: what nodes report against what NATS has, before and after a node's death."""

import json
import re

import aiohttp
import pytest

from evenlane.engine.base import names
from evenlane.engine.producer.put import Put
from evenlane.ring.hashing import partition_of
from tests.ledger.handlers import forgive
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full]

PARTITION = partition_of("acme", 0, 1, 8, "hashed")
OTHER = next(name for name in map("bolt-{}".format, range(1_000)) if partition_of(name, 0, 1, 8, "hashed") == PARTITION)
"""A project whose only group is in the same partition."""

PLACES = ("settled", "head", "next", "end", "waiting", "in_flight")


async def last_of(world, queue, project):
    """The sequence of the last message that NATS has for the queue's subject, and of the whole stream."""
    env, partition = world.settings.env, queue["partition"]
    stream = names.stream(env, names.LaneId("lanes", partition))
    subject = names.lane_subject(env, partition, project, queue["group"], queue["priority"])
    found = await world.api(f"STREAM.MSG.GET.{stream}", {"last_by_subj": subject})
    state = await world.api(f"STREAM.INFO.{stream}")
    return found["message"]["seq"], state["state"]["last_seq"]


async def metrics_of(world, node, partition):
    async with aiohttp.ClientSession() as client, client.get(f"{await world.address(node)}/metrics") as answer:
        text = await answer.text()
    found = re.findall(rf'^evenlane_partition_(\w+)_sequence{{.*partition="{partition}".*}} (\S+)$', text, re.MULTILINE)
    return {name: float(value) for name, value in found}


async def test_positions_survive_a_node_and_move_with_the_queue(world, evenlane_in_thread):
    """E11: `settled` never falls, `end` is the last message in NATS, and after draining both are the same."""
    reports = []

    async def queue_of(project):
        code, out, _ = await evenlane_in_thread("why", project, "--json")
        queues = json.loads(out)["positions"]["queues"] if code == 0 else []
        if not queues or queues[0]["settled"] is None:
            return None
        reports.append((project, queues[0]["settled"]))
        return queues[0]

    async def is_at(*places):
        queue = await queue_of("acme")
        return queue if queue is not None and tuple(queue[place] for place in PLACES) == places else None

    async def is_in_metrics(settled):
        found = await metrics_of(world, "node-b", PARTITION)
        return 0 <= found["purged"] <= found["settled"] == settled <= found["end"] == 35.0

    first = await world.node(concurrency=4)
    await world.topics("acme", OTHER, groups=1, spread=1)
    producer = await world.producer()
    await producer.put_many([Put("acme", b"x") for _ in range(10)])
    await until(lambda: is_at(10, 11, None, 10, 0, 0))
    for project, count in (("acme", 10), (OTHER, 5), ("acme", 10)):
        await producer.put_many([Put(project, b"x", headers={"order": "held"}) for _ in range(count)])

    async def is_complete():
        queue = await queue_of("acme")
        return queue if queue is not None and queue["end"] == 35 else None

    before = await until(is_complete)
    assert (10, 11, 35) == (before["settled"], before["head"], before["end"])
    assert 20 == before["waiting"] + before["in_flight"]
    assert before["head"] + before["in_flight"] == before["next"]
    assert (35, 35) == await last_of(world, before, "acme")
    other = await until(lambda: queue_of(OTHER))
    assert (25, 35) == await last_of(world, other, OTHER)
    assert (20, 21, 25) == (other["settled"], other["head"], other["end"])
    await first.kill()
    await world.node(name="node-b", concurrency=4, http_port=0)
    after = await until(is_complete)
    assert (10, 11, 35) == (after["settled"], after["head"], after["end"])
    assert before["epoch"] < after["epoch"]
    assert ("node-a", "node-b") == (before["node"], after["node"])
    assert await until(lambda: is_in_metrics(10.0))

    forgive(first.ledger)
    drained = await until(lambda: is_at(35, 36, None, 35, 0, 0))
    await until(lambda: is_in_metrics(35.0))
    code, out, _ = await evenlane_in_thread("why", "acme", "--positions")
    row = f"mid 0 {PARTITION} {drained['epoch']} node-b 35 36 - 35 0 0".split()
    assert (0, True) == (code, row in [line.split() for line in out.splitlines()])
    for project in ("acme", OTHER):
        settled = [each for its, each in reports if its == project]
        assert sorted(settled) == settled, "settled fell"
