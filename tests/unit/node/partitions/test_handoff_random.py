"""A partition moves from one node to another while random messages of it are held: each is handled once."""

import random

import pytest

from evenlane.engine.base.names import stream
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.node.tuning import DEFAULT, NodeTuning
from evenlane.ring.membership.records import HeldLane, HeldRecord
from tests.support.node.two import GROUPS, P, Two, due_soon, lane_of
from tests.support.node.world import SECOND, turns

SHAPES = {
    "all in memory": MemoryBudget(),
    "small read-ahead": MemoryBudget(read_ahead=2),
    "spilled": MemoryBudget(index=3, read_ahead=2),
    "no room": MemoryBudget(payload_bytes=40, read_ahead=2, index=5),
}


@pytest.mark.parametrize("tail", [False, True], ids=["one feed", "with a tail feed"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(6))
async def test_held_messages_are_handled_once(shape, tail, seed):
    """L, D: some end at the previous owner, others are released, at random times of the takeover."""
    draw = random.Random(f"{shape} {tail} {seed}")
    tuning = NodeTuning(tail_beyond=10) if tail else DEFAULT
    limits = SHAPES[shape]
    async with Two() as world:
        count = draw.randint(20, 120)
        for n in range(count):
            await world.put(group=draw.choice(GROUPS[:3]), priority=draw.choice(["mid", "low"]), id=f"{n + 1}")
        held = draw.sample(range(1, count + 1), draw.randint(1, count // 2))
        done = set(draw.sample(held, draw.randint(0, len(held))))
        early = set(draw.sample(sorted(done), len(done) // 3))
        b = await world.bare(
            "b", limits=MemoryBudget(limits.payload_bytes, limits.read_ahead, limits.index), tuning=tuning
        )
        record = world.held_record(set(held) - early, early)
        await b.owned.open(P, 2, [record])
        for n in range(draw.randint(0, 30)):
            await world.put(group=draw.choice(GROUPS[:3]), id=f"{count + n + 1}")
            await turns(draw.randint(0, 3))
        late = sorted(done - early)
        for end in range(1, len(late) + 1, max(1, len(late) // 3)):
            early |= set(late[:end])
            record = _moved(record, early)
            b.owned.on_held_change(P, record)
            await turns(draw.randint(0, 20))
        record = _moved(record, done)
        b.owned.on_held_change(P, record)
        if draw.random() < 0.4:  # a short outage
            world.server.disconnect(b.store)
            await turns(draw.randint(0, 5))
            world.server.reconnect(b.store)
        await turns(draw.randint(0, 40))
        b.owned.on_held_gone(P, record)
        await world.all_gone()
        total = world.server.stream(stream("online", lane_of("lanes"))).last
        expected = {str(n) for n in range(1, total + 1)} - {str(n) for n in done}
        assert dict.fromkeys(expected, 1) == world.times("b")
        assert 0 == b.limits.used_bytes
        assert 0 == b.backlog


@pytest.mark.parametrize("seed", range(6))
async def test_held_delayed_messages_are_handled_once(seed):
    """K1, L, D: held messages have been due, and others become due meanwhile."""
    draw = random.Random(seed)
    async with Two() as world:
        count = draw.randint(10, 60)
        for n in range(count):
            await world.put(
                group=draw.choice(GROUPS[:3]), due=due_soon() + draw.randint(-5, 5) * SECOND // 100, id=f"{n + 1}"
            )
        held = draw.sample(range(1, count + 1), draw.randint(1, count // 2))
        done = set(draw.sample(held, draw.randint(0, len(held))))
        b = await world.bare("b", limits=MemoryBudget(read_ahead=draw.choice([2, 64])))
        record = world.held_record(held, kind="later")
        await b.owned.open(P, 2, [record])
        await turns(draw.randint(0, 40))
        record = _moved(record, done)
        b.owned.on_held_change(P, record)
        await turns(draw.randint(0, 40))
        b.owned.on_held_gone(P, record)
        await world.all_gone()
        assert dict.fromkeys({str(n) for n in range(1, count + 1) if n not in done}, 1) == world.times("b")
        assert (0, 0) == (b.limits.used_bytes, b.backlog)


def _moved(record, done):
    """The same record, after the messages `done` have ended."""
    ((kind, lane),) = record.lanes.items()
    every = {*lane.running, *lane.done}
    return HeldRecord(
        id=record.id,
        lanes={
            kind: HeldLane(
                created=lane.created, high=lane.high, high_at=lane.high_at,
                running=sorted(every - done), done=sorted(every & done),
            )
        },
    )  # fmt: skip
