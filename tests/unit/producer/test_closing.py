"""A cancelled producer ends with its cancellation, also while it closes (E7)."""

import asyncio

import pytest

from evenlane.engine.producer.put import Put
from tests.support.cancelling import cancelled_anywhere


@pytest.mark.parametrize("when", ["while it waits", "as it comes"])
@pytest.mark.parametrize("admission", [None, 1.0])
async def test_producer_can_be_cancelled_at_each_await(world, when, admission):
    world.topics.set("slow", '{"qps": 0.1}')

    async def work():
        async with world.producer(admission=admission) as producer:
            await producer.put("acme", b"1")
            waiting = asyncio.create_task(producer.put_many([Put("slow", b"%d" % number) for number in range(2)]))
            await asyncio.sleep(0)
        await waiting

    assert 3 < await cancelled_anywhere(work, when)
