"""The contract of a feed that lags by bytes: it may leave bodies in the stream, which delay nothing then (E5, F10)."""

import asyncio

from tests.support.store.feeding import Taken, feeding, subject
from tests.support.store.harness import LANE

MIB = 1 << 20
_FLOOD = 40  # messages
_AT_MOST = 12 * MIB  # of bodies, until the feed leaves them


async def flood(world, count: int = _FLOOD) -> bytes:
    """Put `count` of the largest messages; returns their subject."""
    to, body = subject(world.env, project="flood"), b"x" * (world.store.max_payload - 1024)
    await asyncio.gather(*(world.store.put(to, b"", body) for _ in range(count)))
    return to.encode()


class FloodContract:
    async def test_message_after_flood_does_not_wait_for_bodies(self, world):
        """The order of reading, in bytes: of the 40 MiB before the small message, at most 12 are read."""
        assert world.store.max_payload == MIB, "as in this contract's figures"
        of_flood = await flood(world)
        await world.store.put(subject(world.env), b"", b"small")
        taken = Taken()
        async with feeding(world.second, taken=taken, on_head=taken.on_head):
            await taken.until(lambda: len(taken.order) == _FLOOD + 1)
            assert list(range(1, _FLOOD + 2)) == taken.order, "each once, in the order of the stream"
            assert _AT_MOST >= sum(len(message[4]) for message in taken.messages)
        assert {MIB - 1024} == {size for subject_, _, _, size in taken.heads if subject_ == of_flood}
        stored = await world.store.get(LANE, [head[1] for head in taken.heads])
        assert [head[2] for head in taken.heads] == [each.at for each in stored]

    async def test_message_whose_head_is_refused_comes_with_body(self, world):
        """L: a message that matches no queue goes to the dead letters with its body."""
        await flood(world)
        await world.store.put(subject(world.env), b"", b"stray")
        await flood(world, 2)
        taken = Taken()

        def on_head(to: bytes, *head) -> bool:
            return b"flood" in to and taken.on_head(to, *head)

        async with feeding(world.second, taken=taken, on_head=on_head):
            await taken.until(lambda: len(taken.order) == _FLOOD + 3)
        assert list(range(1, _FLOOD + 4)) == taken.order
        assert (_FLOOD + 1, b"stray") in [(message[1], message[4]) for message in taken.messages]

    async def test_each_message_of_flood_is_delivered_once_in_order(self, world):
        """With all bodies if no head sink is given; up to an end; over a break."""
        await flood(world)
        all_of_it = list(range(1, _FLOOD + 1))
        async with feeding(world.second) as taken:
            assert all_of_it == await taken.got(_FLOOD)
        taken = Taken()
        async with feeding(world.store, taken=taken, until=_FLOOD, on_head=taken.on_head):
            await asyncio.wait_for(taken.ended.wait(), 60)
            assert all_of_it == taken.order
        taken = Taken()
        async with feeding(world.second, taken=taken, on_head=taken.on_head):
            await taken.until(lambda: taken.heads)
            taken.feed.disturb("a test")
            await taken.until(lambda: len(taken.order) >= _FLOOD)
        assert all_of_it == taken.order

    async def test_small_messages_come_with_bodies_however_many(self, world):
        to = subject(world.env)
        await asyncio.gather(*(world.store.put(to, b"", b"x" * 3_000) for _ in range(4_000)))
        taken = Taken()
        async with feeding(world.second, taken=taken, on_head=taken.on_head):
            await taken.got(4_000)
        assert [] == taken.heads
