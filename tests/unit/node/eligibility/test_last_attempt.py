"""A suspect that the next death would bury runs beside nothing else that is recorded (X11). See test_suspects.py."""

import asyncio

import pytest

from evenlane.engine.core.message.message import Reject
from evenlane.engine.node.handlers.handler import Handler
from tests.support.node.horizons import Horizons
from tests.support.node.keyed import QUICK, Held
from tests.support.node.world import change, topic, turns
from tests.support.until import until


@pytest.fixture
async def world():
    async with Horizons() as made:
        yield made


class TestLastAttempt:
    """Of a suspect whose next death would bury it."""

    async def begin(self, world):
        """Its node runs another recorded message; a third one waits, and it as well."""
        world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
        (self.own,) = await world.put_keys([None])
        await world.dies_with(self.own)
        self.first = await world.put_key(None, priority="high")
        world.waits = Held(self.own, self.first)
        self.node = await world.node_with(self.first)
        await until(lambda: self.node.eligibility.resting(self.queue("mid")))

    def queue(self, priority):
        return next(queue for queue in self.node.queues.of("acme") if queue.priority == priority)

    async def test_it_waits_for_what_is_recorded_and_fresh_ones_go_on(self, world):
        """X11."""
        await self.begin(world)
        fresh = await world.put_keys([None] * 20)
        await until(lambda: set(fresh) == set(world.ids))
        assert [self.first] == [message.id for message in self.node.workers.running]
        world.waits.go(self.first)
        await world.runs(self.node, self.own)
        assert {self.own: (2, True)} == world.looks(self.node)
        world.waits.go()
        await world.all_over()
        assert [] == world.dead()

    async def test_it_does_not_wait_for_ever(self, world):
        """X11, L: for its `ack_wait` and a second; what runs then may have a longer one."""
        world.topics["acme"], world.topics["shop"] = topic(max_attempts=2, ack_wait=0.5, backoff=QUICK), topic()
        (own,) = await world.put_keys([None])
        await world.dies_with(own)
        other = await world.put_key(None, project="shop")
        world.waits = Held(own, other)
        world.topics["acme"] = topic(state="paused")
        node = await world.node_with(other)
        change(world, node, topic(max_attempts=2, ack_wait=0.5, backoff=QUICK))
        await until(lambda: node.eligibility.resting(node.queues.of("acme")[0]))
        await world.runs(node, own, other)
        assert {own: True, other: True} == world.recorded(node)

    async def test_no_other_enters_while_it_runs(self, world):
        """X11: one that kills would make it look guilty."""
        world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
        (own,) = await world.put_keys([None])
        await world.dies_with(own)
        recorded = await world.put_keys([None] * 3)
        node = await world.node_with(own)
        (fresh,) = await world.put_keys([None])
        await until(lambda: fresh in world.ids)
        await turns(50)
        assert [fresh] == world.ids
        assert [own] == [message.id for message in node.workers.running]
        world.waits.go()
        await world.all_over()
        assert {own, fresh, *recorded} == set(world.ids)

    async def test_it_waits_for_the_fallback_of_one_that_failed(self, world):
        """X11: a fallback that kills would make it look guilty; it has no part in the moment before the fallback."""
        world.topics["acme"] = topic(max_attempts=2, backoff=QUICK, ack_wait=60)
        (own,) = await world.put_keys([None])
        await world.dies_with(own)
        first = await world.put_key(None, priority="high")
        fails, falls, ends = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def act(message):
            if message.id == first:
                await fails.wait()
                raise Reject("not wanted")
            await world.live(message)

        async def fallback(_message):
            falls.set()
            await ends.wait()

        world.act, world.waits = act, Held(own)
        node = await world.node_with(first, fallback=Handler.of(fallback))
        await until(lambda: node.eligibility.resting(next(q for q in node.queues.of("acme") if q.priority == "mid")))
        fails.set()
        await falls.wait()
        await turns(50)
        assert [] == node.workers.running
        ends.set()
        await world.runs(node, own)
        world.waits.go()
        await world.all_over()

    async def test_its_topic_is_paused_just_then(self, world):
        """X11, L: the others aren't kept out for ever."""
        world.topics["shop"] = topic()
        await self.begin(world)
        world.topics["shop"] = topic(max_attempts=1)
        self.node.topic_changed("shop", world.topics["shop"])
        other = await world.put_key(None, project="shop")
        await until(lambda: self.node.queues.of("shop"))
        await until(lambda: self.node.eligibility.resting(self.node.queues.of("shop")[0]))
        change(world, self.node, topic(max_attempts=2, state="paused"))
        world.waits.go(self.first)
        await until(lambda: other in world.ids)
        assert self.own not in world.ids
