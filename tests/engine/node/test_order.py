"""Ordered topics on a node: a key's messages go one after the other, whatever happens to them; other keys go on."""

import asyncio

from engine.index import Limits
from tests.engine.node.keyed import Held, Keyed, ordered
from tests.wait import until


async def test_more_wait_behind_a_key_than_may():
    """Order, M: a key may have any number of messages behind it; beyond the limit they stay in the queue."""
    async with Keyed() as world:
        put = await world.put_keys(["k"] * 60)
        node = await world.node(world.handle, concurrency=64, limits=Limits(index=3))
        await world.all_over()
        assert put == world.ids
        world.in_order()
        assert 0 == node.limits.held


async def test_many_wait():
    async with Keyed() as world:
        put = await world.put_keys(["k"] * 400)
        node = await world.node(world.handle, concurrency=64, limits=Limits(index=100))
        await world.all_over(8)
        assert put == world.ids


async def test_retry_while_full():
    async with Keyed() as world:
        async def act(m):
            if m.attempt < 3: raise ValueError("no")
        world.act = act
        put = await world.put_keys(["k"] * 20)
        node = await world.node(world.handle, concurrency=64, limits=Limits(index=3))
        await world.all_over(8)
        assert put == world.ids
