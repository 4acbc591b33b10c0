"""The code that blocks a node's event loop, as another thread sees it: the handler and its messages (F1)."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.message.message import batch
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.runtime.loop_watch.culprit import Culprit
from evenlane.engine.runtime.loop_watch.loop_watch import Blocker, of_blocker
from evenlane.engine.runtime.loop_watch.node_loop import NodeLoop, accusation
from evenlane.engine.telemetry.loop_lag import LoopLag
from evenlane.ring.coordination.memory.client import MemoryCoordination
from evenlane.ring.coordination.ports import Unavailable
from evenlane.ring.membership.records import BlockedLane
from tests.support.lane_host import Host
from tests.support.node.world import World, topic
from tests.support.until import until


async def nothing():
    pass


class Block:
    """`block()` blocks its caller until another thread has looked. `found` is that thread's result, and `record` its
    record for the next owner.
    """

    def __init__(self):
        self._entered, self._seen = threading.Event(), threading.Event()
        self.found = self.record = None

    def __call__(self):
        self._entered.set()
        assert self._seen.wait(30)

    def watch(self, node):
        """Start the other thread for a node of the running loop."""
        self._loop = NodeLoop("a", "online", MemoryCoordination(), LoopLag(), lambda: node, "jobs:handle", nothing)
        threading.Thread(target=self._look, daemon=True).start()

    def _look(self):
        assert self._entered.wait(30)
        self.found = self._loop.blocker()
        if self.found.messages:
            self.record = accusation("a", self.found.messages, 31.26)
        self._seen.set()


def of_each_kind(block):
    async def each(_message):
        block()

    @batch(max=3)
    async def batched(_messages):
        block()

    async def by_a_task_of_its_own(_message):
        await asyncio.gather(asyncio.create_task(each(None)))

    return {"async": each, "batch": batched, "task": by_a_task_of_its_own}


@pytest.mark.parametrize(("kind", "count"), [("async", 1), ("batch", 3)])
async def test_handler_is_named_with_its_messages(kind, count):
    """F1: the log has handler, line, stack, project and message; the next owner gets sequences and seconds."""
    block = Block()
    async with World(acme=topic()) as world:
        for number in range(count):
            await world.put(id=f"m-{number}")
        node = await world.idle_node(of_each_kind(block)[kind])
        block.watch(node)
        await node.take_over(range(2), world.next_epoch())
        await until(lambda: node.counters.handled == count)
        fields = of_blocker(block.found)
        assert count == fields.pop("messages", 1)
        assert ("jobs:handle", "acme", "m-0") == (fields["handler"], fields["project"], fields["id"])
        assert "/test_blocking.py:" in fields["at"]
        assert "in __call__" in fields["stack"]
        handled = {"async": "a message", "batch": "3 messages"}[kind]
        sentence = f"has been blocked for 12 s by {fields['at']}, handling {handled} of acme"
        assert sentence == block.found.sentence(12.3)
        (lane,) = {message.lane for message in block.found.messages}
        assert (lane.epoch, "a") == (block.record.epoch, block.record.id)
        blamed = BlockedLane(created=lane.created, sequences=[*range(1, count + 1)], seconds=31.3)
        assert {"lanes": blamed} == block.record.blocked


def test_batch_of_two_streams_is_blamed_in_both():
    main, later = (FedLane(LaneId(kind, 3), 7, MemoryBudget(), Host()) for kind in ("lanes", "later"))
    main.created, later.created = "the lanes", "the later"
    messages = [SimpleNamespace(lane=lane, sequence=number) for lane, number in ((main, 4), (later, 2), (main, 9))]
    record = accusation("a", messages, 30.0)
    assert ("a", 7) == (record.id, record.epoch)
    assert {
        "lanes": BlockedLane(created="the lanes", sequences=[4, 9], seconds=30.0),
        "later": BlockedLane(created="the later", sequences=[2], seconds=30.0),
    } == record.blocked


async def test_task_that_a_handler_started_blames_no_message():
    """F1: its message is unknown."""
    block = Block()
    async with World(acme=topic()) as world:
        await world.put()
        node = await world.idle_node(of_each_kind(block)["task"])
        block.watch(node)
        await node.take_over(range(2), world.next_epoch())
        await until(lambda: node.counters.handled == 1)
        assert {"at", "stack"} == of_blocker(block.found).keys()
        assert "test_blocking.py:" in block.found.culprit.where
        assert block.found.sentence(2.0) == f"has been blocked for 2 s by {block.found.culprit.where}"


async def test_fallback_is_blamed_like_a_handler():
    block = Block()

    async def fail(_message):
        raise ValueError("no")

    async with World(acme=topic(max_attempts=1)) as world:
        own = await world.put()
        node = await world.idle_node(fail, fallback=Handler.of(of_each_kind(block)["async"]))
        block.watch(node)
        await node.take_over(range(2), world.next_epoch())
        await until(lambda: node.counters.fallen_back == 1)
        assert [own] == [message.id for message in block.found.messages]
        assert "the fallback" == of_blocker(block.found)["handler"]


async def test_loop_that_turned_meanwhile_has_no_blocker():
    """It may run other code by then."""
    lag = LoopLag()

    def turned():
        lag.beats += 1

    loop = NodeLoop("a", "online", MemoryCoordination(), lag, turned, "jobs:handle", nothing)
    assert loop.blocker() is None


@pytest.mark.parametrize("error", [None, Unavailable("etcd is away")], ids=["published", "etcd is away"])
async def test_last_words_publish_the_nodes_record(error):
    """F1: without etcd, the process ends all the same."""
    published = []

    async def publish():
        published.append("record")
        if error is not None:
            raise error

    blocker = Blocker(Culprit("jobs.py:41", "the stack", None), "jobs:handle", [])
    loop = NodeLoop("a", "online", MemoryCoordination(), LoopLag(), lambda: None, "jobs:handle", publish)
    await loop.last_words(blocker, 8.0)
    assert ["record"] == published
