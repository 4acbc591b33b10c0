"""Messages handled, and put, per second in the ways that the documentation of nats-py and FastStream shows.

nats-py: its README, "JetStream". FastStream: its pages "Pull Subscriber", "JetStream" and "Publishing", without its log
of each message. FastStream runs a handler for each message, as Evenlane does; nats-py's ways are loops and callbacks.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from faststream.nats import NatsBroker, PullSub

from benchmarks.busy_cluster import BODY, TIMEOUT_S

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import nats


class Stream:
    """A stream with `count` messages on `subject`."""

    def __init__(self, client: nats.NATS, url: str, name: str, subject: str, count: int) -> None:
        self.client, self.url, self.name, self.subject, self.count = client, url, name, subject, count


class Tally:
    """Counts messages up to `count`, and tells when they are all there."""

    def __init__(self, count: int) -> None:
        self._count, self._seen, self._all = count, 0, asyncio.Event()

    def add(self) -> None:
        self._seen += 1
        if self._seen == self._count:
            self._all.set()

    async def wait(self) -> None:
        await asyncio.wait_for(self._all.wait(), TIMEOUT_S)


async def nats_py_fetch(stream: Stream) -> None:
    subscription = await stream.client.jetstream().pull_subscribe(stream.subject, "psub", stream=stream.name)
    for _ in range(stream.count):
        for message in await subscription.fetch(1):
            await message.ack()


async def nats_py_callback(stream: Stream) -> None:
    tally = Tally(stream.count)

    async def on_message(message) -> None:
        await message.ack()
        tally.add()

    await stream.client.jetstream().subscribe(stream.subject, "workers", cb=on_message, stream=stream.name)
    await tally.wait()


async def faststream_pull(stream: Stream) -> None:
    await _run_faststream(stream, pull_sub=PullSub(batch_size=10))


async def faststream_push(stream: Stream) -> None:
    await _run_faststream(stream)


async def _run_faststream(stream: Stream, **how) -> None:
    broker, tally = NatsBroker(stream.url, logger=None), Tally(stream.count)

    @broker.subscriber(stream.subject, stream=stream.name, **how)
    async def handle(_message) -> None:
        tally.add()

    await broker.start()
    await tally.wait()
    await broker.stop()


async def nats_py_publish(stream: Stream) -> None:
    js = stream.client.jetstream()
    for _ in range(stream.count):
        await js.publish(stream.subject, BODY)


async def faststream_publish(stream: Stream) -> None:
    async with NatsBroker(stream.url, logger=None) as broker:
        for _ in range(stream.count):
            await broker.publish(BODY, stream.subject, stream=stream.name)


# name of the figure: (way, part of the messages)
HANDLING: dict[str, tuple[Callable[[Stream], Awaitable[None]], float]] = {
    "nats-py, fetch(1)": (nats_py_fetch, 0.05),
    "nats-py, push callback": (nats_py_callback, 0.25),
    "FastStream, pull": (faststream_pull, 0.05),
    "FastStream, push": (faststream_push, 0.05),
}
PUTTING: dict[str, tuple[Callable[[Stream], Awaitable[None]], float]] = {
    "nats-py, js.publish": (nats_py_publish, 0.05),
    "FastStream, publish": (faststream_publish, 0.05),
}


async def rate_of(way: Callable[[Stream], Awaitable[None]], stream: Stream) -> float:
    """Messages per second."""
    start = time.perf_counter()
    await way(stream)
    return stream.count / (time.perf_counter() - start)
