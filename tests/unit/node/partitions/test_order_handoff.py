"""A partition with an ordered topic changes its owner: its keys keep their order over both (item 4, Z1)."""

import asyncio
import random

import pytest

from evenlane.engine.cluster.ownership.handoff import handoff_record, not_ended
from evenlane.engine.core.message.message import Pause, Retry
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from evenlane.engine.node.handlers.handler import Handler
from evenlane.engine.node.node import Node
from evenlane.engine.store.memory.store import MemoryStore
from tests.support.node.keyed import Keyed, ordered
from tests.support.node.two import P, Two, due_soon
from tests.support.node.world import CLUSTER_CONFIG, SECOND, turns
from tests.support.until import until


class Keys(Two):
    """Nodes of an ordered topic; who holds what is passed on as etcd would do it."""

    def __init__(self, **fields):
        super().__init__(acme=ordered(**fields))
        self.lanes = {}
        self.handoff_record = None

    async def key(self, key, **options):
        return await self.put(headers={h.KEY: key}, **options)

    async def goes_on(self, b, epoch=2):
        """The next owner, from the former one's word."""
        self.handoff_record = self.record()
        await b.owned.open(P, epoch, [self.handoff_record] if self.handoff_record.lanes else [])

    def pass_on(self, b):
        """What has changed since."""
        before, self.handoff_record = self.handoff_record, self.record()
        b.owned.held_changed(P, self.handoff_record)
        b.owned.held_released(P, not_ended(before, self.handoff_record))

    def order(self):
        return [own for _, own in self.begun]


@pytest.fixture
async def world():
    async with Keys() as made:
        yield made


@pytest.mark.parametrize("kind", ["lanes", "later"])
async def test_a_key_waits_for_what_still_runs_at_the_former_owner(world, kind):
    """Item 4, Z1: and for nothing else; other keys go on."""
    first = await world.key("k", due=due_soon() if kind == "later" else None)
    world.slow = {("a", first)}
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: ("a", first) in world.begun)
    second, other = await world.key("k"), await world.key("other")
    await until(lambda: other in world.ids)
    await world.released(a, 1)
    b = await world.bare("b")
    await world.goes_on(b)
    third, another = await world.key("k"), await world.key("other")
    await until(lambda: another in world.ids)
    await turns(50)
    assert second not in world.order()
    world.gate.set()
    await until(lambda: not world.record().running)
    world.pass_on(b)
    await until(lambda: world.waiting() == 0)
    assert [("a", first), ("b", second), ("b", third)] == [e for e in world.begun if e[1] in {first, second, third}]


@pytest.mark.parametrize("kind", ["lanes", "later"])
async def test_what_fails_at_the_former_owner_goes_first_at_the_next_one(world, kind):
    """K2, item 4: in its next attempt, when that is due; its key waits."""
    first = await world.key("k", due=due_soon() if kind == "later" else None)
    world.slow, world.error = {("a", first)}, Retry(after=0.5)
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: ("a", first) in world.begun)
    second = await world.key("k")
    await world.released(a, 1)
    b = await world.bare("b")
    await world.goes_on(b)
    world.gate.set()
    await until(lambda: not world.record().running)
    failed_at = world.store.now()
    world.pass_on(b)
    await until(lambda: world.ids)
    assert world.store.now() - failed_at >= 0.4 * SECOND
    await until(lambda: world.waiting() == 0)
    assert [("a", first), ("b", first), ("b", second)] == world.begun
    assert [2, 1] == [message.attempt for message in world.handled]
    assert not any(message.suspect for message in world.handled)


@pytest.mark.parametrize("reported", ["durable", "not durable"])
async def test_what_waits_for_its_next_attempt_waits_at_the_next_owner(world, reported):
    """K2: whether the settle log has heard of it or not."""
    began = []

    async def handle(message):
        began.append((message.id, message.attempt, world.store.now()))
        if message.id == first and message.attempt == 1:
            raise Retry(after=0.5)

    first, second = await world.key("k"), await world.key("k")
    a = await world.bare("a", handler=handle, settle_interval=60 if reported == "not durable" else 0.01)
    await a.owned.open(P, 1)
    await until(lambda: list(a.eligibility.retrying()))
    if reported == "not durable":
        world.server.delay_acks()
    else:
        await until(lambda: not a.partitions[P].lane.log.unsynced_count)
    await world.released(a, 1)
    world.server.delay_acks(0)
    b = await world.bare("b", handler=handle)
    await world.goes_on(b)
    await until(lambda: world.waiting() == 0)
    assert [(first, 1), (first, 2), (second, 1)] == [(own, attempt) for own, attempt, _ in began]
    assert began[1][2] - began[0][2] >= 0.5 * SECOND


async def test_what_pauses_at_the_former_owner_goes_first_at_the_next_one(world):
    """K6: no attempt is counted."""
    first = await world.key("k")
    world.slow, world.error = {("a", first)}, Pause(60)
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: ("a", first) in world.begun)
    second = await world.key("k")
    await world.released(a, 1)
    world.slow.clear()
    b = await world.bare("b")
    await world.goes_on(b)
    world.gate.set()
    await until(lambda: not world.record().running)
    world.error = None
    world.pass_on(b)
    await until(lambda: world.waiting() == 0)
    assert [first, second] == world.ids
    assert [1, 1] == [message.attempt for message in world.handled]


async def test_a_key_is_free_when_the_former_owner_has_died(world):
    """X11, L: what it held goes first, as a suspect; no record names it, so no attempt is counted."""
    first = await world.key("k")
    world.slow = {("a", first)}
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: ("a", first) in world.begun)
    second = await world.key("k")
    await world.released(a, 1)
    b = await world.bare("b")
    await world.goes_on(b)
    await world.crash(a)
    await turns(50)
    assert [("a", first)] == world.begun
    b.owned.held_gone(P, world.handoff_record)
    await until(lambda: world.waiting() == 0)
    assert [("a", first), ("b", first), ("b", second)] == world.begun
    assert [(1, True), (1, False)] == [(message.attempt, message.suspect) for message in world.handled]


SHAPES = {
    "all at hand": {},
    "spilled": {"index": 3, "read_ahead": 2},
    "no room": {"payload_bytes": 30, "read_ahead": 2, "index": 5},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
async def test_from_owner_to_owner_and_back(shape, seed):
    """Item 4, Z1, L: again and again, while handlers run, fail and wait for their next attempt; some owners die. Of
    each key one runs at a time over all nodes, in put order; each message ends once, or again after a death.
    """
    draw = random.Random(f"{shape} {seed}")
    async with Keyed(acme=ordered(max_attempts=20)) as world:
        held, epoch, died = [], 0, False

        async def act(message):
            chance = random.Random(f"{seed} {message.id} {message.attempt}")
            for _ in range(chance.choice([0, 1, 3])):
                await asyncio.sleep(0)
            await asyncio.sleep(chance.choice([0, 0, 0.002, 0.03]))
            if chance.random() < 0.2:
                raise Retry(after=chance.choice([0, 0.01, 0.05]))

        async def bare():
            return await _bare(world, MemoryBudget(**SHAPES[shape]))

        world.act = act
        nodes = [await bare(), await bare()]
        for round_ in range(6):
            node, epoch = nodes[round_ % 2], epoch + 1
            await node.owned.open(P, epoch, held)
            await world.put_keys(draw.choices("abcd", k=12))
            await asyncio.sleep(draw.choice([0, 0.01, 0.05]))
            if draw.random() < 0.25:
                died = True
                await world.crash(node)
                nodes[round_ % 2], held = await bare(), []
                world.running.clear()
            else:
                node.owned.stop_partition(P)
                handed = await node.owned.hand_off(P, epoch, draw.choice([0, 0.05]))
                held = [await _ended(node, epoch, handed)]
        await nodes[0].owned.open(P, epoch + 1, held)
        await world.all_over()
        assert [] == world.together
        for (*_, key), put in world.put_to.items():
            firsts = list(dict.fromkeys(world.ids_of(key)))
            assert put == firsts
            assert died or put == world.ids_of(key)
        assert {own for put in world.put_to.values() for own in put} == set(world.ids)
        assert died or len(world.ids) == len(set(world.ids))
        assert [0, 0] == [node.limits.held for node in nodes]


async def _bare(world, limits):
    store = MemoryStore(world.server, "online")
    await store.open()
    node = Node(store, CLUSTER_CONFIG, Handler.of(world.handle), world.topics.get, limits=limits, settle_interval=0.02)
    world.nodes.append(node)
    await node.start()
    return node


async def _ended(node, epoch, handed):
    """Its last word, when nothing of it runs any more."""
    await until(lambda: not handoff_record("a", epoch, handed).running)
    return handoff_record("a", epoch, handed)
