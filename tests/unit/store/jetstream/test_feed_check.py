"""A feed that nobody hears of is made anew, but not because its own process stood still (F1)."""

from time import monotonic

import pytest

from evenlane.engine.store.jetstream.byte_budget import FeedBudget
from evenlane.engine.store.jetstream.feed import FeedCallbacks, FeedSource, JetStreamFeed
from tests.support.until import until


class Silent:
    """A connection over which nothing comes; `made` counts consumers, `left` those that nobody listens to any more."""

    def __init__(self):
        self.made = self.left = 0

    async def api_as(self, kind, verb, _request):
        self.made += verb.startswith("CONSUMER.CREATE")
        return kind(name=f"c{self.made}", num_pending=0)

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


async def looked(feed, seconds, late, begun=None):
    """Look at it each second, from its creation on."""
    begun = begun or monotonic()
    feed.check(begun)  # its first look
    for second in range(1, seconds + 1):
        feed.check(begun + second + late, late=late if second == 1 else 0.0)


async def test_without_heartbeats_it_is_made_anew(fed):
    connection, feed = fed
    await looked(feed, 14, late=0.0)
    await until(lambda: connection.made == 2, what="another consumer")


async def test_after_a_block_of_its_loop_what_came_is_read_first(fed):
    connection, feed = fed
    begun = monotonic()
    await looked(feed, 12, late=60.0, begun=begun)
    assert (1, 0) == (connection.made, connection.left)
    await looked(feed, 14, late=60.0, begun=begun + 60.0)
    await until(lambda: connection.made == 2, what="another consumer, as it is silent still")
