"""Handlers that block the event loop, one after another: messages put meanwhile don't wait for all of them (F1)."""

import asyncio
import socket
import time

import pytest

from tests.support.node.world import World, topic
from tests.support.until import until


@pytest.mark.parametrize(("block_s", "answer_s", "count"), [(0.15, 0.0, 4), (1.2, 0.03, 2)])
async def test_message_put_during_a_block_runs_before_the_next_block(block_s, answer_s, count):
    """D: it waits for one block. A task processes what a connection has received, some turns of the loop later, and
    after a long block feeds must ask the server first.
    """
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    begun = []

    async def handle(message):
        begun.append(message.project)
        if message.project == "blocker":
            theirs.send(b"x")
            time.sleep(block_s)  # (the block itself)

    async with World(blocker=topic(ack_wait=60), other=topic()) as world:

        async def put_others():
            while await reader.read(1):
                if answer_s:
                    await asyncio.sleep(answer_s)
                await world.put(project="other")

        putting = asyncio.create_task(put_others())
        await world.put_many(count, project="blocker")
        node = await world.node(handle)
        await until(lambda: node.counters.handled == 2 * count)
        theirs.close()
        await putting
        writer.close()
        assert ["blocker", "other"] * count == begun
