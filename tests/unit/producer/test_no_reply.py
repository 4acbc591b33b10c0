"""F5, K6: the error of a put whose stream can't be written."""

import asyncio

import pytest

from evenlane.engine.base import names
from evenlane.engine.errors import NotAcknowledged
from evenlane.engine.producer.no_reply import UNKNOWN, ReplyTimeouts
from evenlane.engine.producer.put import Put
from tests.support.until import until

REASON = "the server can't write: no space left on its disk"
SUBJECT = "lanes.online.3.acme.0.mid"


async def test_put_without_answer_names_reason(world):
    async with world.producer(timeout=2) as producer:
        world.server.fill_disk()
        with pytest.raises(
            NotAcknowledged, match=rf"1 try brought no acknowledgement \({REASON}\): if put again with id"
        ):
            await producer.put("acme", b"x", id="mine")


async def test_put_that_waits_for_window_names_reason(world):
    async with world.producer(timeout=2, window_messages=1) as producer:
        world.server.fill_disk()
        first = asyncio.create_task(producer.put("acme", b"x"))
        await asyncio.sleep(0)
        with pytest.raises(NotAcknowledged, match=rf"too few of the messages before it \({REASON}\)"):
            await producer.put("acme", b"y")
        await asyncio.gather(first, return_exceptions=True)


async def test_put_is_stored_once_when_disk_has_room_again(world):
    """L: a put is retried until its deadline, as the server may get room again."""
    async with world.producer() as producer:
        world.server.fill_disk()
        putting = asyncio.create_task(producer.put_many([Put("acme", b"x", id="mine")]))
        await asyncio.sleep(0)
        world.server.make_room()
        world.server.disconnect()
        world.server.reconnect()
        [receipt] = await putting
        assert not isinstance(receipt, Exception)
    assert 1 == len(world.stored())


async def test_reason_expires_after_3_s_and_belongs_to_one_stream(world):
    """The reason of an earlier put doesn't explain one that NATS loses later."""
    async with world.producer():
        replies = ReplyTimeouts(world.store)
        assert UNKNOWN == await replies.reason(SUBJECT, 10.0)
        world.server.fill_disk()
        assert REASON == await replies.reason(SUBJECT, 10.0)
        assert (REASON, "") == (replies.reason_for(SUBJECT, 12.9), replies.reason_for(SUBJECT, 13.0))
        assert ("", REASON) == (replies.reason_for("lanes.online.4.acme.0.mid", 11.0), replies.any_reason(11.0))
        world.server.disconnect()
        assert REASON == await replies.reason(SUBJECT, 11.0), "the reason is still valid"
        assert UNKNOWN == await replies.reason(SUBJECT, 14.0)


async def test_store_is_asked_once_a_second_for_all_silent_streams(world):
    async with world.producer():
        world.server.fill_disk(names.stream_of(SUBJECT))
        replies = ReplyTimeouts(world.store)
        replies.ask([], 10.0)
        assert replies.is_due(10.0), "nothing has been asked"
        replies.ask([SUBJECT, SUBJECT, "later.online.3.acme.0.mid.1"], 10.0)
        assert not replies.is_due(11.5), "the last request has no answer yet"
        await until(lambda: replies.reason_for(SUBJECT, 10.0), what="the answer")
        assert (False, True) == (replies.is_due(10.9), replies.is_due(11.0))
        await replies.close()
