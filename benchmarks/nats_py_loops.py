"""The control arms of `benchmarks.throughput`: loops that a careful user of nats-py would write."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from nats.js.api import AckPolicy, ConsumerConfig

if TYPE_CHECKING:
    import nats

_TIMEOUT_S = 300


async def pull_and_ack(client: nats.NATS, stream: str, count: int) -> tuple[float, float]:
    """Handle `count` messages by callback and `ack()`, with two open pulls of 1,000. Return messages per second, and
    the CPU time per message in us.
    """
    js, got, done = client.jetstream(), 0, asyncio.Event()
    await js.add_consumer(
        stream, ConsumerConfig(durable_name="c", ack_policy=AckPolicy.EXPLICIT, max_ack_pending=100_000)
    )
    inbox, pull = client.new_inbox(), f"$JS.API.CONSUMER.MSG.NEXT.{stream}.c"

    async def on_message(message) -> None:
        nonlocal got
        if message.reply:
            await message.ack()
            got += 1
            if got % 1000 == 0:
                await client.publish(pull, b'{"batch":1000}', reply=inbox)
            if got == count:
                done.set()

    await client.subscribe(inbox, cb=on_message, pending_msgs_limit=-1, pending_bytes_limit=-1)
    processor, start = time.process_time(), time.perf_counter()
    for _ in range(2):
        await client.publish(pull, b'{"batch":1000}', reply=inbox)
    await asyncio.wait_for(done.wait(), _TIMEOUT_S)
    return count / (time.perf_counter() - start), (time.process_time() - processor) / count * 1e6


async def fetch_and_ack(client: nats.NATS, stream: str, count: int) -> float:
    """Handle `count` messages by `fetch(500)` and `ack()`. Return messages per second."""
    got, subscription = 0, await client.jetstream().pull_subscribe("", "c", stream=stream)
    start = time.perf_counter()
    while got < count:
        for message in await subscription.fetch(500):
            await message.ack()
            got += 1
    return count / (time.perf_counter() - start)


async def publish_and_count(client: nats.NATS, subjects: list[str], body: bytes, count: int, window: int) -> float:
    """Publish `count` messages with ids, up to `window` of them unacknowledged; a callback counts acknowledgements.
    Return messages per second.
    """
    acknowledged, room = 0, asyncio.Event()

    async def on_ack(message) -> None:
        nonlocal acknowledged
        assert b'"seq"' in message.data
        acknowledged += 1
        room.set()

    inbox, start = client.new_inbox(), time.perf_counter()
    await client.subscribe(inbox, cb=on_ack, pending_msgs_limit=-1, pending_bytes_limit=-1)
    for number in range(count):
        headers = {"Nats-Msg-Id": f"b:{number:x}"}
        await client.publish(subjects[number % len(subjects)], body, reply=inbox, headers=headers)
        while number - acknowledged >= window:
            room.clear()
            await asyncio.wait_for(room.wait(), _TIMEOUT_S)
    while acknowledged < count:
        room.clear()
        await asyncio.wait_for(room.wait(), _TIMEOUT_S)
    return count / (time.perf_counter() - start)
