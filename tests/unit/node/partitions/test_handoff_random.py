"""A partition goes from one node to another while any of its messages may be held, by a seed: each is handled once."""

import random

import pytest

from evenlane.engine.base.names import stream
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.node.tuning import DEFAULT, Tuning
from evenlane.ring.membership.records import HeldLane, HeldRecord
from tests.support.node.two import GROUPS, P, Two, due_soon, lane_of
from tests.support.node.world import SECOND, turns
from tests.support.until import until

SHAPES = {
    "all at hand": MemoryBudget(),
    "little at hand": MemoryBudget(read_ahead=2),
    "spilled": MemoryBudget(index=3, read_ahead=2),
    "no room": MemoryBudget(payload_bytes=40, read_ahead=2, index=5),
}


@pytest.mark.parametrize("tail", [False, True], ids=["one feed", "with a tail feed"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", range(6))
async def test_each_message_is_handled_once_whatever_is_held_and_let_go_when(shape, tail, seed):
    """L, D: any messages may be held; some end there, others are let go, at any time of the take-over."""
    draw = random.Random(f"{shape} {tail} {seed}")
    tuning = Tuning(tail_beyond=10) if tail else DEFAULT
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
        word = world.held(set(held) - early, early)
        await b.owned.open(P, 2, [word])
        for n in range(draw.randint(0, 30)):
            await world.put(group=draw.choice(GROUPS[:3]), id=f"{count + n + 1}")
            await turns(draw.randint(0, 3))
        late = sorted(done - early)
        for end in range(1, len(late) + 1, max(1, len(late) // 3)):
            early |= set(late[:end])
            word = _moved(word, early)
            b.owned.held_changed(P, word)
            await turns(draw.randint(0, 20))
        word = _moved(word, done)
        b.owned.held_changed(P, word)
        if draw.random() < 0.4:  # a short outage changes nothing of it
            world.server.disconnect(b.store)
            await turns(draw.randint(0, 5))
            world.server.reconnect(b.store)
        await turns(draw.randint(0, 40))
        b.owned.held_gone(P, word)
        await until(lambda: world.waiting() == 0, what="all to be settled")
        total = world.server.stream(stream("online", lane_of("lanes"))).last
        wanted = {str(n) for n in range(1, total + 1)} - {str(n) for n in done}
        assert dict.fromkeys(wanted, 1) == world.times("b")
        assert 0 == b.limits.held
        assert 0 == b.backlog


@pytest.mark.parametrize("seed", range(6))
async def test_so_are_delayed_ones(seed):
    """K1, L, D: those that ran elsewhere had been due; others become due meanwhile."""
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
        word = world.held(held, kind="later")
        await b.owned.open(P, 2, [word])
        await turns(draw.randint(0, 40))
        word = _moved(word, done)
        b.owned.held_changed(P, word)
        await turns(draw.randint(0, 40))
        b.owned.held_gone(P, word)
        await until(lambda: world.waiting() == 0, what="all to be settled")
        assert dict.fromkeys({str(n) for n in range(1, count + 1) if n not in done}, 1) == world.times("b")
        assert (0, 0) == (b.limits.held, b.backlog)


def _moved(record, done):
    """The same word, when these have ended."""
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
