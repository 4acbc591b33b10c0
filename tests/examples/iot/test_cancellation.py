"""A gateway ends when it is asked to, although nats-py may lose a cancellation."""

import asyncio

import pytest

from examples.iot.ingress import MQTT, Ingress


class Subscription:
    """Before Python 3.12, `wait_for` returns a message that arrives together with the cancellation."""

    def __init__(self):
        self.asked = asyncio.Event()

    async def fetch(self, _count, timeout):
        assert timeout
        self.asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return ["a message"]


class JetStream:
    def __init__(self, subscription):
        self._subscription = subscription

    async def pull_subscribe_bind(self, **_options):
        return self._subscription


async def test_cancellation_that_a_fetch_swallows_ends_the_worker():
    """P7: otherwise the gateway would wait for this worker for ever."""
    subscription = Subscription()

    async def work():
        async for _ in Ingress(JetStream(subscription), None).messages(MQTT):
            pass

    working = asyncio.create_task(work())
    await subscription.asked.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(working), 30)
    assert working.cancelled()
