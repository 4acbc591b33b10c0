"""A suspect in its last attempt runs while no other recorded message is in flight (X11). See test_suspects.py."""

import asyncio

import pytest

from evenlane.engine.core.message.handler_exceptions import Reject
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
    """A suspect that the next death would dead-letter."""

    async def begin(self, world):
        """The node runs another recorded message, and the suspect waits."""
        world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
        (self.suspect,) = await world.put_keys([None])
        await world.crash_with(self.suspect)
        self.first = await world.put_key(None, priority="high")
        world.waits = Held(self.suspect, self.first)
        self.node = await world.node_with(self.first)
        await until(lambda: self.node.eligibility.list_resting(self.queue("mid")))

    def queue(self, priority):
        return next(queue for queue in self.node.queues.of_project("acme") if queue.priority == priority)

    async def test_suspect_waits_for_recorded_message_while_fresh_ones_run(self, world):
        """X11."""
        await self.begin(world)
        fresh = await world.put_keys([None] * 20)
        await until(lambda: set(fresh) == set(world.ids))
        assert [self.first] == [message.id for message in self.node.workers.running]
        world.waits.go(self.first)
        await world.runs(self.node, self.suspect)
        assert {self.suspect: (2, True)} == world.looks(self.node)
        world.waits.go()
        await world.all_gone()
        assert [] == world.dead()

    async def test_suspect_waits_no_longer_than_its_ack_wait(self, world):
        """X11, L: and one second. The other message's `ack_wait` may be longer."""
        world.topics["acme"], world.topics["shop"] = topic(max_attempts=2, ack_wait=0.5, backoff=QUICK), topic()
        (suspect,) = await world.put_keys([None])
        await world.crash_with(suspect)
        other = await world.put_key(None, project="shop")
        world.waits = Held(suspect, other)
        world.topics["acme"] = topic(state="paused")
        node = await world.node_with(other)
        change(world, node, topic(max_attempts=2, ack_wait=0.5, backoff=QUICK))
        await until(lambda: node.eligibility.list_resting(node.queues.of_project("acme")[0]))
        await world.runs(node, suspect, other)
        assert {suspect: True, other: True} == world.recorded(node)

    async def test_no_recorded_message_starts_while_suspect_runs(self, world):
        """X11: if another message killed the process, the suspect would look guilty."""
        world.topics["acme"] = topic(max_attempts=2, backoff=QUICK)
        (suspect,) = await world.put_keys([None])
        await world.crash_with(suspect)
        recorded = await world.put_keys([None] * 3)
        node = await world.node_with(suspect)
        (fresh,) = await world.put_keys([None])
        await until(lambda: fresh in world.ids)
        await turns(50)
        assert [fresh] == world.ids
        assert [suspect] == [message.id for message in node.workers.running]
        world.waits.go()
        await world.all_gone()
        assert {suspect, fresh, *recorded} == set(world.ids)

    async def test_suspect_waits_for_fallback_of_recorded_message(self, world):
        """X11: if the fallback killed the process, the suspect would look guilty. It doesn't start in the moment before
        the fallback either.
        """
        world.topics["acme"] = topic(max_attempts=2, backoff=QUICK, ack_wait=60)
        (suspect,) = await world.put_keys([None])
        await world.crash_with(suspect)
        first = await world.put_key(None, priority="high")
        fails, fallback_begun, fallback_ends = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def act(message):
            if message.id == first:
                await fails.wait()
                raise Reject("not wanted")
            await world.live(message)

        async def fallback(_message):
            fallback_begun.set()
            await fallback_ends.wait()

        world.act, world.waits = act, Held(suspect)
        node = await world.node_with(first, fallback=Handler.of(fallback))
        await until(
            lambda: node.eligibility.list_resting(
                next(q for q in node.queues.of_project("acme") if q.priority == "mid")
            )
        )
        fails.set()
        await fallback_begun.wait()
        await turns(50)
        assert [] == node.workers.running
        fallback_ends.set()
        await world.runs(node, suspect)
        world.waits.go()
        await world.all_gone()

    async def test_recorded_messages_start_when_waiting_suspect_is_paused(self, world):
        """X11, L: they don't wait for ever."""
        world.topics["shop"] = topic()
        await self.begin(world)
        change(world, self.node, topic(max_attempts=1), "shop")
        other = await world.put_key(None, project="shop")
        await until(lambda: self.node.queues.of_project("shop"))
        await until(lambda: self.node.eligibility.list_resting(self.node.queues.of_project("shop")[0]))
        change(world, self.node, topic(max_attempts=2, state="paused"))
        world.waits.go(self.first)
        await until(lambda: other in world.ids)
        assert self.suspect not in world.ids
