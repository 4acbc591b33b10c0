"""A silent feed gets another consumer, but not because its own process was blocked (F1)."""

from time import monotonic

import pytest

from evenlane.engine.store.feed_callbacks import FeedCallbacks
from evenlane.engine.store.jetstream.delivery.byte_budget import FeedBudget
from evenlane.engine.store.jetstream.feed import FeedSource, JetStreamFeed
from tests.support.until import until


class Silent:
    """A connection without messages; `made` counts consumers, `left` ended subscriptions."""

    def __init__(self):
        self.made = self.left = 0

    async def api_as(self, kind, verb, _request):
        self.made += verb.startswith("CONSUMER.CREATE")
        return kind(name=f"c{self.made}", num_pending=0)

    def inbox(self, name):
        return f"_INBOX.{name}"

    def listen(self, _subject, _sink):
        return self.made

    def unlisten(self, _sid):
        self.left += 1

    def send(self, *_, **__):
        pass


async def again(last):
    return last + 1


@pytest.fixture
async def fed():
    connection = Silent()
    budget, callbacks = FeedBudget(1 << 20, 1 << 16), FeedCallbacks(lambda *_: None, again)
    feed = JetStreamFeed(connection, budget, FeedSource("LANES_online_0"), callbacks, start=1)
    await until(lambda: connection.made == 1)
    yield connection, feed
    await feed.close()


async def checked(feed, seconds, late, begun=None):
    """Check the feed each second, from its creation on."""
    begun = begun or monotonic()
    feed.check(begun)
    for second in range(1, seconds + 1):
        feed.check(begun + second + late, late=late if second == 1 else 0.0)


async def test_feed_without_heartbeats_gets_new_consumer(fed):
    connection, feed = fed
    await checked(feed, 14, late=0.0)
    await until(lambda: connection.made == 2, what="another consumer")


async def test_feed_reads_pending_messages_first_after_blocked_loop(fed):
    connection, feed = fed
    begun = monotonic()
    await checked(feed, 12, late=60.0, begun=begun)
    assert (1, 0) == (connection.made, connection.left)
    await checked(feed, 14, late=60.0, begun=begun + 60.0)
    await until(lambda: connection.made == 2, what="another consumer")
