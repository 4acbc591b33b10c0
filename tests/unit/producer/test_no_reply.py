"""F5, K6: what a put says whose stream can't be written."""

import asyncio

import pytest

from evenlane.engine.base import names
from evenlane.engine.errors import NotAcknowledged
from evenlane.engine.producer.no_reply import UNKNOWN, ReplyTimeouts
from evenlane.engine.producer.put import Put
from tests.support.until import until

REASON = "the server can't write: no space left on its disk"
SUBJECT = "lanes.online.3.acme.0.mid"


async def test_a_put_without_an_answer_says_why_there_is_none(world):
    async with world.producer(timeout=2) as producer:
        world.server.fill_disk()
        with pytest.raises(NotAcknowledged, match=rf"1 try brought no acknowledgement \({REASON}\): put again with id"):
            await producer.put("acme", b"x", id="mine")


async def test_who_waits_for_room_behind_it_is_told_as_well(world):
    async with world.producer(timeout=2, window_messages=1) as producer:
        world.server.fill_disk()
        first = asyncio.create_task(producer.put("acme", b"x"))
        await asyncio.sleep(0)
        with pytest.raises(NotAcknowledged, match=rf"too little of what was put before it \({REASON}\)"):
            await producer.put("acme", b"y")
        await asyncio.gather(first, return_exceptions=True)


async def test_what_is_written_again_in_time_is_stored_once(world):
    """L: nothing is given up before its time, as the server may come back with room."""
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


async def test_a_reason_is_forgotten_after_3_s_and_where_the_stream_has_none(world):
    """What kept the last put from being stored isn't said of one that NATS loses later."""
    async with world.producer():
        silence = ReplyTimeouts(world.store)
        assert UNKNOWN == await silence.reason(SUBJECT, 10.0)
        world.server.fill_disk()
        assert REASON == await silence.reason(SUBJECT, 10.0)
        assert (REASON, "") == (silence.why(SUBJECT, 12.9), silence.why(SUBJECT, 13.0))
        assert ("", REASON) == (silence.why("lanes.online.4.acme.0.mid", 11.0), silence.any_reason(11.0))
        world.server.disconnect()
        assert REASON == await silence.reason(SUBJECT, 11.0), "NATS says nothing else now"
        assert UNKNOWN == await silence.reason(SUBJECT, 14.0)


async def test_it_asks_once_a_second_of_all_that_are_silent(world):
    async with world.producer():
        world.server.fill_disk(names.stream_of(SUBJECT))
        silence = ReplyTimeouts(world.store)
        silence.ask([], 10.0)
        assert silence.due(10.0), "nothing was asked"
        silence.ask([SUBJECT, SUBJECT, "later.online.3.acme.0.mid.1"], 10.0)
        assert not silence.due(11.5), "the last question has no answer yet"
        await until(lambda: silence.why(SUBJECT, 10.0), what="the answer")
        assert (False, True) == (silence.due(10.9), silence.due(11.0))
        await silence.close()
