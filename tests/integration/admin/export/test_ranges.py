"""Ranges of a stream on a real server: in order, each message once, whatever happens to stream and server meanwhile."""

import asyncio
import json

import pytest

from evenlane.engine.admin.export.client import StreamReader
from evenlane.engine.base.config.settings import load
from evenlane.engine.core.export_port import Range
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.runtime.embedded.pair import Servers
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.export import ranges
from evenlane.engine.store.jetstream.export.streams import sequence_at, stream, streams
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.timeout(60)]

NAME = "DEAD_online"
MEBIBYTE = 1 << 20


class Place:
    """A server with one stream, and a connection that reads it."""

    def __init__(self, servers, connection):
        self.servers, self.connection = servers, connection

    async def make(self):
        await self.connection.api(f"STREAM.CREATE.{NAME}", {"name": NAME, "subjects": ["dead.online.>"]})

    async def put(self, *bodies, project="acme"):
        for body in bodies:
            reply = await self.connection.ask(f"dead.online.{project}", body)
            assert "error" not in json.loads(reply.body)

    def read(self, first, last, *subjects, bodies=True, **tuning):
        return ranges.read(self.connection, Range(NAME, first, last, subjects, bodies), **tuning)

    async def sequences(self, *wanted, **more):
        return [each.stored.sequence async for page in self.read(*wanted, **more) for each in page]


@pytest.fixture
async def place(tmp_path):
    async with Servers(tmp_path, fast=True) as servers:
        connection = Connection(NatsOptions((servers.nats.url,)), "test")
        await connection.open()
        made = Place(servers, connection)
        await made.make()
        yield made
        await connection.close()


async def test_ranges_lose_nothing_and_take_no_more_than_is_theirs(place):
    """Issue 8.2: ends that are deleted, gaps, subjects, times, bodies of nearly the largest size, or none asked for."""
    large = b"x" * (MEBIBYTE - 1_000)
    await place.put(*(b"%d" % n for n in range(1, 21)))
    await place.put(b"other", project="globex")
    await place.put(large, large)
    for gone in (1, 2, 9, 10, 20, 23):
        await place.connection.api(f"STREAM.MSG.DELETE.{NAME}", {"seq": gone, "no_erase": True})
    assert [*range(3, 9), *range(11, 20), 21, 22] == await place.sequences(1, 23)
    assert [8, 11] == await place.sequences(8, 11)
    assert [] == await place.sequences(9, 10)
    assert [] == await place.sequences(24, 30)
    assert [21] == await place.sequences(1, 23, "dead.online.globex")
    assert [*range(11, 20), 21] == await place.sequences(11, 21, "dead.online.globex", "dead.online.acme")
    [[found]] = [page async for page in place.read(22, 22)]
    assert (large, len(large)) == (found.stored.body, found.size)
    [[found]] = [page async for page in place.read(22, 22, bodies=False)]
    assert (b"", len(large)) == (found.stored.body, found.size)
    [[eighth]] = [page async for page in place.read(8, 8)]
    assert 8 == await sequence_at(place.connection, NAME, eighth.stored.at)
    assert 11 == await sequence_at(place.connection, NAME, eighth.stored.at + 1)
    assert 24 == await sequence_at(place.connection, NAME, found.stored.at + 3_600 * 10**9)


async def test_a_server_that_goes_away_is_waited_for_and_nothing_comes_twice(place):
    """Issue 8.2: a restart in the middle of a range."""
    await place.put(*(b"%d" % n for n in range(1, 21)))
    found = []
    async for page in place.read(1, 20, messages=5):
        found += [each.stored.body for each in page]
        if len(found) == 10:
            await place.servers.nats.stop()
            await place.servers.nats.start()
    assert [b"%d" % n for n in range(1, 21)] == found


@pytest.mark.parametrize("refusal", ["409 Leadership Change", "409 Consumer Deleted", "503"])
async def test_a_server_in_trouble_says_no_end_of_a_range(place, monkeypatch, refusal):
    """Issue 8.2: what it refuses for now is read again; nothing is missing, nothing comes twice."""
    await place.put(*(b"%d" % n for n in range(1, 21)))
    send, refused = Connection.send, []

    def refusing(self, subject, body, headers=b"", reply=""):
        if ".MSG.NEXT." in subject and len(found) == 10 and not refused:
            refused.append(subject)
            subject, body, headers, reply = reply, b"", f"NATS/1.0 {refusal}\r\n\r\n".encode(), ""
        send(self, subject, body, headers, reply)

    monkeypatch.setattr(Connection, "send", refusing)
    found = []
    async for page in place.read(1, 20, messages=5):
        found += [each.stored.body for each in page]
    assert [b"%d" % n for n in range(1, 21)] == found
    assert refused


async def test_a_server_that_stays_away_is_told(place):
    """Issue 8.2: server gone, in one sentence, after some time."""
    await place.put(b"1")
    await place.servers.nats.stop()
    with pytest.raises(Unreachable, match=f"stream {NAME} can't be read for 1 s"):
        await place.sequences(1, 1, timeout_s=0.5)
    await place.servers.nats.start()


async def test_a_stream_that_is_deleted_while_it_is_read_is_told(place):
    """Issue 8.2: stream missing, in one sentence."""
    await place.put(*(b"%d" % n for n in range(1, 7)))
    pages = place.read(1, 6, messages=2)
    assert 2 == len(await anext(pages))
    await place.connection.api(f"STREAM.DELETE.{NAME}")
    with pytest.raises(EvenlaneError, match=f"stream {NAME} has been deleted while it was read"):
        await anext(pages)


async def test_no_consumer_is_left_behind(place):
    """Issue 8.2: nor where a reader stops in the middle."""
    await place.put(*(b"%d" % n for n in range(1, 7)))
    assert 6 == len(await place.sequences(1, 6, messages=2))
    pages = place.read(1, 6, messages=2)
    await anext(pages)
    await pages.aclose()

    async def none_left():
        return not (await place.connection.api(f"CONSUMER.NAMES.{NAME}")).get("consumers")

    await until(none_left, 10)


async def test_streams_are_told_by_what_they_take(place):
    """Issue 8.2: which streams there are, and what they hold."""
    await place.put(b"1", b"2")
    found = await stream(place.connection, NAME)
    assert (NAME, 1, 2, 2) == (found.name, found.first, found.last, found.messages)
    assert [found] == await streams(place.connection, "dead.online.>")
    assert [] == await streams(place.connection, "lanes.online.>")
    assert None is await stream(place.connection, "NONE")


async def test_a_plain_program_reads_the_same(place):
    """Issue 8.2: a task of Spark's has no loop of its own."""
    await place.put(b"1", b"2")
    settings = load({"nats": place.servers.nats.url}, environ={}).settings

    def work():
        with StreamReader(settings) as server:
            return [each.stored.body for page in server.read(Range(NAME, 1, 2)) for each in page]

    assert [b"1", b"2"] == await asyncio.to_thread(work)
