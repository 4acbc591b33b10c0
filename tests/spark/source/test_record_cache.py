"""The cache of records on a real server: rows are those of the stream, whatever is kept, and whatever happens to it."""

import asyncio
import os
import pwd
import shutil
from functools import partial
from pathlib import Path
from random import Random
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.meter_load import load
from evenlane.engine.core.export_port import Range
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.spark.jobs.ingest import ingest
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.schemas import METER
from evenlane.spark.source.columns import arrow_schema
from evenlane.spark.source.options import parse
from evenlane.spark.source.plan import Task
from evenlane.spark.source.reading import rows
from evenlane.spark.source.record_cache import BLOCK, MOST_ROWS, default_root, open_cache

pytestmark = pytest.mark.real

RECORDS = 2 * BLOCK + 500


class MeterStream:
    """A server with a stream of meter records."""

    def __init__(self, folder, root):
        self._folder, self.root = folder, root
        self.last = 0
        self.server = NatsServer(folder, fast=True)

    @property
    def options(self):
        return parse({"nats": self.server.url, "what": "meter"})

    async def add(self, records, queues=1):
        await load(self.server.url, records, queues)
        self.last += records

    async def request(self, verb, body=None):
        connection = Connection(NatsOptions((self.server.url,)), "test")
        await connection.open()
        try:
            await connection.api(verb, body)
        finally:
            await connection.close()

    async def copy_to(self, folder):
        """Make a backup."""
        await self.server.stop()
        shutil.copytree(self._folder, folder)
        await self.server.start()

    async def restore(self, folder):
        await self.server.stop()
        shutil.rmtree(self._folder)
        shutil.copytree(folder, self._folder)
        await self.server.start()

    def task(self, first=1, last=None):
        return Task([Range("METER_online", first, last or self.last)])

    async def from_stream(self, task):
        return await asyncio.to_thread(lambda: table(rows(self.options, task)))

    async def open(self):
        return await asyncio.to_thread(open_cache, self.root, self.options)

    async def read(self, task=None):
        """Read through the cache."""
        cache, whole = await self.open(), self.task()
        return await asyncio.to_thread(lambda: table(cache.rows(self.options, task or whole)))


def table(batches):
    found = pa.Table.from_batches(batches, arrow_schema(METER))
    return found.sort_by([("sequence", "ascending"), ("partition", "ascending")]).combine_chunks()


@pytest.fixture
async def stream(tmp_path):
    made = MeterStream(tmp_path / "nats", tmp_path / "cache")
    await made.server.start()
    yield made
    await made.server.stop()


async def test_kept_records_need_no_server(stream):
    """Whole blocks are read once; rows are the same, in whatever parts they are asked for."""
    await stream.add(RECORDS)
    whole = await stream.from_stream(stream.task())
    chance, cache, options = Random(1), await stream.open(), stream.options
    assert whole.equals(await stream.read())
    assert [0, 1] == cache.blocks()
    await stream.server.stop()
    for _ in range(20):
        first, last = sorted(chance.sample(range(1, 2 * BLOCK + 1), 2))
        assert whole.slice(first - 1, last - first + 1).equals(table(cache.rows(options, stream.task(first, last))))
    await stream.server.start()


async def test_new_records_are_read_from_the_stream(stream):
    """The end of a stream isn't kept until a block is whole; parts of a block never are."""
    await stream.add(RECORDS)
    assert (await stream.read(stream.task(100, 2 * BLOCK - 1))).num_rows == 2 * BLOCK - 100
    assert [] == (await stream.open()).blocks()
    for added, kept in (0, [0, 1]), (BLOCK, [0, 1, 2]):
        await stream.add(added)
        assert (await stream.from_stream(stream.task())).equals(await stream.read())
        assert kept == (await stream.open()).blocks()


async def test_broken_block_is_read_again(stream):
    """Of a file that was cut off, or that another program wrote, nothing counts."""
    await stream.add(RECORDS)
    whole = await stream.read()
    [first, second] = sorted((await stream.open()).folder.glob("*.parquet"))
    size = second.stat().st_size
    first.write_bytes(b"no Parquet")
    second.write_bytes(second.read_bytes()[: size // 2])
    (first.parent / "_new-of-a-killed-report").touch()
    os.utime(first.parent / "_new-of-a-killed-report", (0, 0))
    assert whole.equals(await stream.read())
    assert size == second.stat().st_size
    pq.write_table(pa.table({"sequence": range(BLOCK)}), first)
    assert whole.equals(await stream.read())
    assert {first, second} == set(first.parent.iterdir())


async def test_expired_blocks_are_removed(stream):
    """Records that the stream removes go from the cache with the next report."""
    await stream.add(RECORDS)
    await stream.read()
    await stream.request("STREAM.PURGE.METER_online", {"seq": BLOCK + 100})
    assert [1] == (await stream.open()).blocks()
    await stream.request("STREAM.PURGE.METER_online")
    assert [] == (await stream.open()).blocks()


async def test_streams_that_nobody_reads_are_removed(stream):
    """After a month."""
    await stream.add(BLOCK)
    await stream.read()
    other = stream.root / "METER_another"
    other.mkdir()
    os.utime(other, (0, 0))
    kept = (await stream.open()).folder
    assert [kept] == list(stream.root.iterdir())


async def test_block_with_a_gap_is_not_kept(stream):
    """What is missing may be missing for this reader only."""
    await stream.add(RECORDS)
    await stream.request("STREAM.MSG.DELETE.METER_online", {"seq": 77})
    assert RECORDS - 1 == (await stream.read()).num_rows
    assert [1] == (await stream.open()).blocks()


async def test_records_with_many_rows_are_not_kept(stream):
    """A cache of them would be large, and no quicker than the stream."""
    queues = MOST_ROWS // BLOCK + 1
    await stream.add(BLOCK, queues)
    assert BLOCK * queues == (await stream.read()).num_rows
    assert [] == (await stream.open()).blocks()


async def test_new_stream_has_records_of_its_own(stream):
    """Sequences begin anew if the stream was deleted."""
    await stream.add(RECORDS)
    await stream.read()
    await stream.request("STREAM.DELETE.METER_online")
    stream.last = 0
    await stream.add(RECORDS, queues=2)
    assert 2 * RECORDS == (await stream.read()).num_rows


async def test_restored_stream_has_records_of_its_own(stream, tmp_path):
    """After a backup's restoration, the same sequences of the same stream are other records."""
    await stream.add(BLOCK + 100)
    await stream.copy_to(tmp_path / "backup")
    await stream.add(BLOCK)
    await stream.read()
    assert [0, 1] == (await stream.open()).blocks()
    await stream.restore(tmp_path / "backup")
    assert [] == (await stream.open()).blocks()  # the last record of the newest block doesn't exist
    stream.last = BLOCK + 100
    await stream.add(BLOCK)
    await stream.read()
    await stream.restore(tmp_path / "backup")
    stream.last = BLOCK + 100
    await stream.add(BLOCK, queues=2)  # now it does, and is another one
    assert (await stream.from_stream(stream.task())).equals(await stream.read())
    assert BLOCK + 100 + 2 * BLOCK == (await stream.read()).num_rows


async def test_report_needs_no_cache(stream):
    """A folder that can't be made, as in a container with a read-only disk."""
    await stream.add(BLOCK)
    stream.root.write_text("no folder")
    assert await stream.open() is None


def test_user_without_a_home_has_no_cache(monkeypatch):
    """Such as a user ID without an account, in a container."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/of-mine")
    assert Path("/var/cache/of-mine/evenlane/records") == default_root()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", MagicMock(side_effect=KeyError))
    assert default_root() is None


async def test_cache_without_records(stream):
    """There is no stream yet."""
    assert await stream.open() is None


async def test_ingestion_reads_the_same_through_the_cache(stream, spark, tmp_path):
    """Rows of figures and counts: from the stream, while blocks are kept, and from these."""
    await stream.add(8 * BLOCK)
    given, span = {"nats": stream.server.url, "what": "meter"}, SPANS["1h"]
    direct = await asyncio.to_thread(ingest, spark, given, tmp_path / "direct", span)
    for number in range(2):
        work = partial(ingest, spark, given, tmp_path / f"through-{number}", span, cache=stream.root)
        through = await asyncio.to_thread(work)
        assert direct.tally == through.tally
        for one, other in zip(direct.rows, through.rows, strict=True):
            assert one.num_rows == other.num_rows
            assert sorted(map(str, one.to_pylist())) == sorted(map(str, other.to_pylist()))
    assert len((await stream.open()).blocks()) >= 4
