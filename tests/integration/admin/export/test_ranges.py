"""Ranges of a stream on a real server: in order, each message once, across deletions and failures of the server."""

import asyncio
import json

import pytest

from evenlane.engine.admin.export.client import StreamReader
from evenlane.engine.base.config.settings import load
from evenlane.engine.core.export_port import Range
from evenlane.engine.errors import EvenlaneError, Unreachable
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.export import ranges
from evenlane.engine.store.jetstream.export.streams import sequence_at, stream, streams
from tests.support.until import until

pytestmark = pytest.mark.real

MEBIBYTE = 1 << 20


class Place:
    """A server with one stream, and a connection that reads it."""

    def __init__(self, server, connection, env):
        self.server, self.connection, self.env = server, connection, env
        self.name, self.subject = f"DEAD_{env}", f"dead.{env}"

    async def put(self, *bodies, project="acme"):
        for body in bodies:
            reply = await self.connection.ask(f"{self.subject}.{project}", body)
            assert "error" not in json.loads(reply.body)

    def read(self, first, last, *projects, bodies=True, **tuning):
        subjects = tuple(f"{self.subject}.{project}" for project in projects)
        return ranges.read(self.connection, Range(self.name, first, last, subjects, bodies), **tuning)

    async def sequences(self, *arguments, **options):
        return [each.stored.sequence async for page in self.read(*arguments, **options) for each in page]


@pytest.fixture
async def place(nats_server, env):
    connection = Connection(NatsOptions((nats_server.url,)), "test")
    await connection.open()
    made = Place(nats_server, connection, env)
    await connection.api(f"STREAM.CREATE.{made.name}", {"name": made.name, "subjects": [f"{made.subject}.>"]})
    yield made
    await connection.close()


async def test_range_has_exactly_its_messages(place):
    """Deleted ends, gaps, subjects, times, and bodies of nearly the largest size, or none."""
    large = b"x" * (MEBIBYTE - 1_000)
    await place.put(*(b"%d" % n for n in range(1, 21)))
    await place.put(b"other", project="globex")
    await place.put(large, large)
    for deleted in (1, 2, 9, 10, 20, 23):
        await place.connection.api(f"STREAM.MSG.DELETE.{place.name}", {"seq": deleted, "no_erase": True})
    assert [*range(3, 9), *range(11, 20), 21, 22] == await place.sequences(1, 23)
    assert [8, 11] == await place.sequences(8, 11)
    assert [] == await place.sequences(9, 10)
    assert [] == await place.sequences(24, 30)
    assert [21] == await place.sequences(1, 23, "globex")
    assert [*range(11, 20), 21] == await place.sequences(11, 21, "globex", "acme")
    [[found]] = [page async for page in place.read(22, 22)]
    assert (large, len(large)) == (found.stored.body, found.size)
    [[found]] = [page async for page in place.read(22, 22, bodies=False)]
    assert (b"", len(large)) == (found.stored.body, found.size)
    [[eighth]] = [page async for page in place.read(8, 8)]
    assert 8 == await sequence_at(place.connection, place.name, eighth.stored.at)
    assert 11 == await sequence_at(place.connection, place.name, eighth.stored.at + 1)
    assert 24 == await sequence_at(place.connection, place.name, found.stored.at + 3_600 * 10**9)


async def test_range_continues_after_server_restart(place):
    await place.put(*(b"%d" % n for n in range(1, 21)))
    found = []
    async for page in place.read(1, 20, messages=5):
        found += [each.stored.body for each in page]
        if len(found) == 10:
            await place.server.stop()
            await place.server.start()
    assert [b"%d" % n for n in range(1, 21)] == found


class RefusingConnection:
    """A connection on which the server refuses the third pull."""

    def __init__(self, inner, refusal):
        self._inner, self._refusal, self.pulls = inner, refusal, 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def send(self, subject, body, headers=b"", reply=""):
        self.pulls += ".MSG.NEXT." in subject
        if ".MSG.NEXT." in subject and self.pulls == 3:
            self._inner.send(reply, b"", f"NATS/1.0 {self._refusal}\r\n\r\n".encode())
        else:
            self._inner.send(subject, body, headers, reply)


@pytest.mark.parametrize("refusal", ["409 Leadership Change", "409 Consumer Deleted", "503"])
async def test_range_continues_after_refused_pull(place, refusal):
    """A refusal is no end of the range: no message is missing, and none comes twice."""
    await place.put(*(b"%d" % n for n in range(1, 21)))
    place.connection = refusing = RefusingConnection(place.connection, refusal)
    assert list(range(1, 21)) == await place.sequences(1, 20, messages=5)
    assert refusing.pulls > 4


async def test_unreachable_server_ends_range_with_error(place):
    await place.put(b"1")
    await place.server.stop()
    with pytest.raises(Unreachable, match=f"stream {place.name} can't be read for 1 s"):
        await place.sequences(1, 1, timeout_s=0.5)
    await place.server.start()


async def test_deleted_stream_ends_range_with_error(place):
    await place.put(*(b"%d" % n for n in range(1, 7)))
    pages = place.read(1, 6, messages=2)
    assert 2 == len(await anext(pages))
    await place.connection.api(f"STREAM.DELETE.{place.name}")
    with pytest.raises(EvenlaneError, match=f"stream {place.name} was deleted while it was being read"):
        await anext(pages)


async def test_reader_leaves_no_consumer(place):
    """Also if it stops in the middle."""
    await place.put(*(b"%d" % n for n in range(1, 7)))
    assert 6 == len(await place.sequences(1, 6, messages=2))
    pages = place.read(1, 6, messages=2)
    await anext(pages)
    await pages.aclose()

    async def no_consumer():
        return not (await place.connection.api(f"CONSUMER.NAMES.{place.name}")).get("consumers")

    await until(no_consumer)


async def test_streams_are_found_by_name_and_subject(place):
    await place.put(b"1", b"2")
    found = await stream(place.connection, place.name)
    assert (place.name, 1, 2, 2) == (found.name, found.first, found.last, found.messages)
    assert [found] == await streams(place.connection, f"{place.subject}.>")
    assert [] == await streams(place.connection, f"lanes.{place.env}.>")
    assert None is await stream(place.connection, "NONE")


async def test_synchronous_reader_reads_range(place):
    """A task of Spark has no event loop of its own."""
    await place.put(b"1", b"2")
    settings = load({"nats": place.server.url}, environ={}).settings

    def work():
        with StreamReader(settings) as reader:
            return [each.stored.body for page in reader.read(Range(place.name, 1, 2)) for each in page]

    assert [b"1", b"2"] == await asyncio.to_thread(work)
