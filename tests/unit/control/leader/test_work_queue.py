"""The leader's work queue collects updates while the leader handles earlier ones (X4)."""

import asyncio

import pytest

from evenlane.engine.control.leader.work_queue import WorkQueue
from evenlane.ring.coordination.ports import Event, KeyValue, Listing
from tests.support.until import until

TOPICS, ACCEPTED = "/evenlane/online/topics/", "/evenlane/online/accepted/"


class FedWatch:
    """A watch whose updates the test feeds."""

    def __init__(self):
        self._updates, self._taken = asyncio.Queue(), False

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self._taken:
            self._updates.task_done()
        self._taken = True
        update = await self._updates.get()
        if update is None:
            raise StopAsyncIteration
        return update

    async def feed(self, *updates):
        """Return when the reader has handled these updates. None ends the watch."""
        for update in updates:
            self._updates.put_nowait(update)
        if updates[-1] is not None:
            await self._updates.join()


def item(key, value, revision):
    return KeyValue(key, value, 1, revision, 0)


def put(key, value, revision=2):
    return Event("put", item(key, value, revision))


@pytest.fixture
def specs():
    return FedWatch()


@pytest.fixture
def accepted():
    return FedWatch()


@pytest.fixture
async def queue(specs, accepted):
    made = WorkQueue(specs, accepted)
    yield made
    await made.close()


async def test_batch_has_the_last_update_of_each_key(queue, specs):
    await specs.feed(*(put(TOPICS + "ab"[qps % 2], b"%d" % qps) for qps in range(100)))
    assert await queue.wait()
    batch = queue.take()
    assert ([b"98", b"99"], [], []) == ([each.item.value for each in batch.specs], batch.accepted, batch.asked)
    assert ([], [], []) == queue.take()


async def test_accepted_topics_are_kept_apart_from_specs(queue, accepted):
    await accepted.feed(put(ACCEPTED + "a", b"rubbish"))
    assert await queue.wait()
    batch = queue.take()
    assert ([], [b"rubbish"]) == (batch.specs, [each.item.value for each in batch.accepted])


async def test_listing_replaces_earlier_updates(queue, specs):
    """Fault 11: an older event must not follow a newer listing."""
    listing = Listing(3, (item(TOPICS + "a", b"2", 3),))
    await specs.feed(Listing(1, ()), put(TOPICS + "a", b"1"), put(TOPICS + "b", b"1"), listing)
    assert [listing] == queue.take().specs


async def test_closed_queue_answers_open_requests(queue, specs):
    """The end of a watch ends the queue."""
    request = asyncio.ensure_future(queue.ask("a", {0}, None))
    await specs.feed(None)

    async def has_ended():
        return not await queue.wait()

    await until(has_ended)
    await queue.close()
    assert not await request
