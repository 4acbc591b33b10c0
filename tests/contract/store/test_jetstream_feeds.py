"""Feeds of JetStream: pulls, consumers, and the common budget of bytes."""

import asyncio

import pytest

from evenlane.engine.base import names
from evenlane.engine.store.feed_callbacks import FeedCallbacks
from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget
from evenlane.engine.store.jetstream.feed import FeedSource, JetStreamFeed
from tests.support.store.feeding import Taken, feeding, fill, subject, whole
from tests.support.store.harness import LANE
from tests.support.until import until

pytestmark = pytest.mark.real

TOTAL = 32 << 20


class MeasuringConnection:
    """A connection that notes the sizes of all deliveries, as the server counts them."""

    def __init__(self, inner):
        self._inner, self.sizes = inner, []

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def listen(self, subject, callback):
        def measured(*message):
            self.sizes.append(sum(map(len, message)))
            callback(*message)

        return self._inner.listen(subject, measured)


def feed_with(connection, budget, world, taken, **options):
    source = FeedSource(names.stream(world.env, LANE))
    return JetStreamFeed(
        connection, budget, source, FeedCallbacks(taken.sink, taken.on_break, taken.ended.set), **options
    )


async def test_message_that_fills_pull_to_last_byte_stalls_nothing(world):
    """nats-server ends such a pull without a status; unnoticed, the feed would wait 12 s for heartbeats."""
    budget, taken = FeedBudget(TOTAL, world.store.max_payload + 1024), Taken()
    await world.store.put(subject(world.env), b"", b"")
    async with world.connected() as connection:
        measuring = MeasuringConnection(connection)
        feed = feed_with(measuring, budget, world, taken, start=1)
        await taken.got(1)
        await feed.close()
    await world.store.purge(LANE, 2)
    for _ in range(8):
        body = b"x" * (FeedBudget(TOTAL, world.store.max_payload).small // 2 - measuring.sizes[0])
        await world.store.put(subject(world.env), b"", body)
    async with feeding(world.store, start=2) as taken:
        assert list(range(2, 10)) == await taken.got(8)
        assert [] == taken.breaks, "as after missing heartbeats"


async def test_feed_of_a_stream_of_unknown_replicas_runs(world):
    """A store that hasn't asked for the stream's state yet, on a single server, whose consumers name no leader."""
    await fill(world, 3)
    other = world.another(feeds_apart=False)
    await other.open()
    async with feeding(other) as taken:
        assert [1, 2, 3] == await taken.got(3)
    await other.close()


async def test_feed_finds_end_that_is_deleted_while_it_runs(world):
    """All remaining messages are deleted between two messages."""
    await fill(world, 3)
    for _ in range(6):
        await world.store.put(subject(world.env), b"", b"x" * (256 << 10))  # more than the first pull fetches
    budget, taken = FeedBudget(TOTAL, world.store.max_payload + 1024), Taken()
    budget.hold()  # so that the rest waits for its turn
    async with world.connected() as connection:
        feed = feed_with(connection, budget, world, taken, start=1, until=9)
        await taken.got(3)
        for sequence in range(4, 10):
            await world.second.delete(LANE, sequence)
        budget.release()
        await asyncio.wait_for(taken.ended.wait(), 60)
        assert [1, 2, 3] == taken.sequences
        await feed.close()


async def test_64_feeds_of_1_mib_messages_keep_connection(world):
    """Without a common budget, the server cuts a connection with 64 MB waiting."""
    lanes = [LANE._replace(partition=number) for number in range(64, 128)]
    await world.store.prepare(lanes)
    body = b"x" * (world.store.max_payload - 100)
    for lane in lanes:
        to = subject(world.env, lane)
        await asyncio.gather(*(world.store.put(to, b"", body) for _ in range(3)))
    before = world.second.incarnation
    taken = [Taken() for _ in lanes]
    feeds = [world.second.feed(lane, 1, each.sink, each.on_break) for lane, each in zip(lanes, taken, strict=True)]
    for each in taken:
        assert [1, 2, 3] == await each.got(3, timeout=120)
    assert before == world.second.incarnation
    assert [] == [each.breaks for each in taken if each.breaks]
    await asyncio.gather(*(feed.close() for feed in feeds))
    assert [1, 2, 3] == await whole(world.second, lanes[0], until=3), "all turns are returned"


async def test_deleted_consumer_is_replaced(world):
    await fill(world, 3)
    async with feeding(world.store) as taken:
        await taken.got(3)
        stream = names.stream(world.env, LANE)
        for consumer in (await world.api(f"CONSUMER.NAMES.{stream}"))["consumers"]:
            await world.api(f"CONSUMER.DELETE.{stream}.{consumer}")
        await taken.until(lambda: taken.breaks)
        await fill(world, 1)
        assert [1, 2, 3, 4] == await taken.got(4)


async def test_closed_feed_leaves_no_consumer(world):
    await fill(world, 1)
    async with feeding(world.store) as taken:
        await taken.got(1)
    stream = names.stream(world.env, LANE)

    async def no_consumer() -> bool:
        return not (await world.api(f"CONSUMER.NAMES.{stream}"))["consumers"]

    await until(no_consumer)
