"""A partition with an ordered topic changes its owner: its keys keep their order over both (K6, Z1)."""

import asyncio
import random

import pytest

from evenlane.engine.cluster.ownership.handoff import find_released, handoff_record
from evenlane.engine.core.message.handler_exceptions import Pause, Retry
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.wire import headers as h
from tests.support.node.keyed import KeyedWorld, ordered
from tests.support.node.two import P, Two, due_soon
from tests.support.node.world import SECOND, turns
from tests.support.until import until


class Keys(Two):
    """Nodes of an ordered topic. Handoff records pass from one owner to the next as they do through etcd."""

    def __init__(self, **fields):
        super().__init__(acme=ordered(**fields))
        self.lanes = {}
        self.handoff_record = None

    async def key(self, key, **options):
        return await self.put(headers={h.KEY: key}, **options)

    async def take_over(self, b, epoch=2):
        """Open the partition on the next owner, with the record of the previous one."""
        self.handoff_record = self.record()
        await b.owned.open(P, epoch, [self.handoff_record] if self.handoff_record.lanes else [])

    def pass_on(self, b):
        """Report the changes of the record since to the next owner."""
        before, self.handoff_record = self.handoff_record, self.record()
        b.owned.on_held_change(P, self.handoff_record)
        b.owned.on_held_release(P, find_released(before, self.handoff_record))

    def order(self):
        return [message_id for _, message_id in self.begun]


@pytest.fixture
async def world():
    async with Keys() as made:
        yield made


@pytest.mark.parametrize("kind", ["lanes", "later"])
async def test_key_waits_for_its_message_at_the_previous_owner(world, kind):
    """K6, Z1: other keys run."""
    first = await world.key("k", due=due_soon() if kind == "later" else None)
    world.slow = {("a", first)}
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: ("a", first) in world.begun)
    second, other = await world.key("k"), await world.key("other")
    await until(lambda: other in world.ids)
    await world.released(a, 1)
    b = await world.bare("b")
    await world.take_over(b)
    third, another = await world.key("k"), await world.key("other")
    await until(lambda: another in world.ids)
    await turns(50)
    assert second not in world.order()
    world.gate.set()
    await until(lambda: not world.record().is_running)
    world.pass_on(b)
    await world.all_gone()
    assert [("a", first), ("b", second), ("b", third)] == [e for e in world.begun if e[1] in {first, second, third}]


@pytest.mark.parametrize("kind", ["lanes", "later"])
async def test_next_owner_runs_a_failed_held_message_first(world, kind):
    """K2, K6: in its next attempt, when that is due. Its key waits."""
    first = await world.key("k", due=due_soon() if kind == "later" else None)
    world.slow, world.error = {("a", first)}, Retry(after=0.5)
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: ("a", first) in world.begun)
    second = await world.key("k")
    await world.released(a, 1)
    b = await world.bare("b")
    await world.take_over(b)
    world.gate.set()
    await until(lambda: not world.record().is_running)
    failed_at = world.store.now()
    world.pass_on(b)
    await until(lambda: world.ids)
    assert world.store.now() - failed_at >= 0.4 * SECOND
    await world.all_gone()
    assert [("a", first), ("b", first), ("b", second)] == world.begun
    assert [2, 1] == [message.attempt for message in world.handled]
    assert not any(message.is_suspect for message in world.handled)


@pytest.mark.parametrize("settled", ["durable", "not durable"])
async def test_retry_waits_at_the_next_owner(world, settled):
    """K2: whether the failure is in the settle log or not."""
    began = []

    async def handle(message):
        began.append((message.id, message.attempt, world.store.now()))
        if message.id == first and message.attempt == 1:
            raise Retry(after=0.5)

    first, second = await world.key("k"), await world.key("k")
    a = await world.bare("a", handler=handle, settle_interval=60 if settled == "not durable" else 0.01)
    await a.owned.open(P, 1)
    await until(lambda: list(a.eligibility.iter_retrying()))
    if settled == "not durable":
        world.server.delay_acks()
    else:
        await until(lambda: not a.partitions[P].lane.log.unsynced_count)
    await world.released(a, 1)
    world.server.delay_acks(0)
    b = await world.bare("b", handler=handle)
    await world.take_over(b)
    await world.all_gone()
    assert [(first, 1), (first, 2), (second, 1)] == [(message_id, attempt) for message_id, attempt, _ in began]
    assert began[1][2] - began[0][2] >= 0.5 * SECOND


async def test_next_owner_runs_a_paused_held_message_first(world):
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
    await world.take_over(b)
    world.gate.set()
    await until(lambda: not world.record().is_running)
    world.error = None
    world.pass_on(b)
    await world.all_gone()
    assert [first, second] == world.ids
    assert [1, 1] == [message.attempt for message in world.handled]


async def test_held_message_runs_first_after_the_death_of_its_owner(world):
    """X11, L: as a suspect. No record names it, so no attempt is counted."""
    first = await world.key("k")
    world.slow = {("a", first)}
    a = await world.bare("a")
    await a.owned.open(P, 1)
    await until(lambda: ("a", first) in world.begun)
    second = await world.key("k")
    await world.released(a, 1)
    b = await world.bare("b")
    await world.take_over(b)
    await world.crash(a)
    await turns(50)
    assert [("a", first)] == world.begun
    b.owned.on_held_gone(P, world.handoff_record)
    await world.all_gone()
    assert [("a", first), ("b", first), ("b", second)] == world.begun
    assert [(1, True), (1, False)] == [(message.attempt, message.is_suspect) for message in world.handled]


SHAPES = {
    "all in memory": {},
    "spilled": {"index": 3, "read_ahead": 2},
    "no room": {"payload_bytes": 30, "read_ahead": 2, "index": 5},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(4))
async def test_keys_stay_in_order_over_many_owners(shape, seed):
    """K6, Z1, L: the partition moves to and fro while handlers run, fail and wait for their next attempt, and some
    owners die. One message of a key runs at a time over all nodes, in put order. Each message ends once, or again after
    a death.
    """
    draw = random.Random(f"{shape} {seed}")
    async with KeyedWorld(acme=ordered(max_attempts=20)) as world:
        held, epoch, died = [], 0, False

        async def act(message):
            chance = random.Random(f"{seed} {message.id} {message.attempt}")
            for _ in range(chance.choice([0, 1, 3])):
                await asyncio.sleep(0)
            await asyncio.sleep(chance.choice([0, 0, 0.002, 0.03]))
            if chance.random() < 0.2:
                raise Retry(after=chance.choice([0, 0.01, 0.05]))

        async def idle_node():
            return await world.idle_node(world.handle, concurrency=64, limits=MemoryBudget(**SHAPES[shape]))

        world.act = act
        nodes = [await idle_node(), await idle_node()]
        for round_ in range(6):
            node, epoch = nodes[round_ % 2], epoch + 1
            await node.owned.open(P, epoch, held)
            await world.put_keys(draw.choices("abcd", k=12))
            await asyncio.sleep(draw.choice([0, 0.01, 0.05]))
            if draw.random() < 0.25:
                died = True
                await world.crash(node)
                nodes[round_ % 2], held = await idle_node(), []
                world.running.clear()
            else:
                node.owned.stop_partition(P)
                lanes = await node.owned.hand_off(P, epoch, draw.choice([0, 0.05]))
                held = [await _last_record(epoch, lanes)]
        await nodes[0].owned.open(P, epoch + 1, held)
        await world.all_gone()
        assert [] == world.overlaps
        for (*_, key), put in world.put_by_key.items():
            firsts = list(dict.fromkeys(world.ids_of(key)))
            assert put == firsts
            assert died or put == world.ids_of(key)
        assert {message_id for put in world.put_by_key.values() for message_id in put} == set(world.ids)
        assert died or len(world.ids) == len(set(world.ids))
        assert [0, 0] == [node.limits.used_bytes for node in nodes]


async def _last_record(epoch, lanes):
    """The handoff record once none of its messages runs."""
    await until(lambda: not handoff_record("a", epoch, lanes).is_running)
    return handoff_record("a", epoch, lanes)
