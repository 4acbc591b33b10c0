"""The contract of the queue limit: `prepare`'s `queue_limit`, and the puts that it refuses."""

import asyncio

import pytest

from evenlane.engine.base import names
from evenlane.engine.core.ports import UNLIMITED, QueueFull
from evenlane.engine.core.wire import headers as h
from tests.support.store.feeding import fill, subject
from tests.support.store.harness import LANE, LATER


async def put(world, *, to: str = "", message_id: str = ""):
    return await world.store.put(to or subject(world.env), h.encode({h.ID: message_id} if message_id else {}), b"x")


class LimitContract:
    async def test_full_queue_refuses_puts_and_others_take_them(self, world):
        """The limit is each queue's own."""
        await world.store.prepare([LANE], 3)
        await fill(world, 3)
        with pytest.raises(QueueFull, match="its queue is full, with 3 messages") as caught:
            await put(world)
        assert 3 == caught.value.limit
        assert 4 == (await put(world, to=names.lane_subject(world.env, LANE.partition, "acme", 1, "mid"))).sequence

    async def test_concurrent_puts_fill_queue_exactly_to_limit(self, world):
        await world.store.prepare([LANE], 5)
        outcomes = await asyncio.gather(*(put(world) for _ in range(20)), return_exceptions=True)
        assert 15 == sum(isinstance(each, QueueFull) for each in outcomes)
        assert {subject(world.env): 5} == await world.store.counts(LANE)

    async def test_limit_applies_to_connections_that_do_not_know_it(self, world):
        await world.store.prepare([LANE], 1)
        await world.second.prepare([LANE])
        await fill(world, 1)
        with pytest.raises(QueueFull):
            await world.second.put(subject(world.env), b"", b"x")

    async def test_delete_and_purge_make_room(self, world):
        await world.store.prepare([LANE], 2)
        first, _ = await fill(world, 2)
        await world.store.delete(LANE, first)
        assert 3 == (await put(world)).sequence
        await world.store.purge(LANE, 3)
        assert 4 == (await put(world)).sequence
        with pytest.raises(QueueFull):
            await put(world)

    async def test_refused_id_may_be_put_again(self, world):
        """K6: the store doesn't remember a refused id, or the second try would be lost."""
        await world.store.prepare([LANE], 1)
        await put(world, message_id="acme:1")
        assert (await put(world, message_id="acme:1")).duplicate
        with pytest.raises(QueueFull):
            await put(world, message_id="acme:2")
        await world.store.delete(LANE, 1)
        assert not (await put(world, message_id="acme:2")).duplicate

    async def test_delay_streams_have_no_limit(self, world):
        """A retry must never be refused."""
        await world.store.prepare([LANE, LATER], 1)
        assert [1, 2, 3] == await fill(world, 3, LATER, hour=1)

    async def test_limit_of_existing_stream_is_raised_and_removed(self, world):
        await world.store.prepare([LANE], 2)
        await fill(world, 2)
        await world.second.prepare([LANE], 3)
        await put(world)
        with pytest.raises(QueueFull):
            await put(world)
        await world.second.prepare([LANE], UNLIMITED)
        assert [4, 5, 6] == await fill(world, 3)

    async def test_new_limit_of_stream_keeps_its_messages(self, world):
        await fill(world, 3)
        await world.store.prepare([LANE], 4)
        await put(world)
        with pytest.raises(QueueFull):
            await put(world)
        assert {subject(world.env): 4} == await world.store.counts(LANE)

    async def test_limit_below_backlog_is_deferred_without_loss(self, world):
        """L: nats-server would delete the oldest messages."""
        await fill(world, 5)
        await world.store.prepare([LANE], 3)
        assert [6] == await fill(world, 1)
        assert {subject(world.env): 6} == await world.store.counts(LANE)
        await world.store.purge(LANE, 4)
        await world.second.prepare([LANE], 3)
        with pytest.raises(QueueFull):
            await put(world)
        assert {subject(world.env): 3} == await world.store.counts(LANE)

    async def test_recreated_stream_has_its_limit(self, world):
        await world.store.prepare([LANE], 1)
        await world.replace(LANE)
        await world.store.prepare([LANE])
        await fill(world, 1)
        with pytest.raises(QueueFull):
            await put(world)
