"""The cache of records on a real server: rows are those of the stream, whatever is kept, and whatever happens to it."""

import asyncio
import contextlib
import json
import os
import pwd
import shutil
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.meter_load import load
from evenlane.engine.core.export_port import Range
from evenlane.engine.runtime.embedded.nats import NatsServer
from evenlane.engine.store.jetstream.client.connection import Connection
from evenlane.engine.store.jetstream.client.options import NatsOptions
from evenlane.engine.store.jetstream.streams import ensure
from evenlane.spark.jobs.ingest import ingest
from evenlane.spark.jobs.record_cache import BLOCK, MOST_BYTES, MOST_ROWS, align, default_root, open_cache
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.schemas import METER
from evenlane.spark.source.columns import arrow_schema
from evenlane.spark.source.options import parse
from evenlane.spark.source.plan import Task, tasks
from evenlane.spark.source.reading import rows
from tests.spark.source.records import METER as METER_STREAM
from tests.spark.source.records import record

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

    async def put(self, *bodies):
        connection = Connection(NatsOptions((self.server.url,)), "test")
        await connection.open()
        try:
            await ensure(connection, [METER_STREAM])
            for body in bodies:
                await connection.request("meter.online.node-1", body, timeout=10)
        finally:
            await connection.close()
        self.last += len(bodies)

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

    async def through_cache(self, task=None):
        """Rows read through the cache, and the blocks that it has then."""

        def read():
            with open_cache(self.root, self.options) as cache:
                return table(cache.rows(self.options, task or self.task())), cache.blocks()

        return await asyncio.to_thread(read)

    async def read(self, task=None):
        found, _ = await self.through_cache(task)
        return found

    async def blocks(self):
        """The blocks of a cache that is opened; None if it can't be used."""

        def look():
            with open_cache(self.root, self.options) as cache:
                return None if cache is None else cache.blocks()

        return await asyncio.to_thread(look)

    @property
    def folder(self):
        [folder] = self.root.iterdir()
        return folder


def table(batches):
    found = pa.Table.from_batches(batches, arrow_schema(METER))
    return found.sort_by([("sequence", "ascending"), ("partition", "ascending")]).combine_chunks()


@pytest.fixture
async def stream(tmp_path):
    made = MeterStream(tmp_path / "nats", tmp_path / "cache")
    await made.server.start()
    yield made
    await made.server.stop()


async def test_cached_records_need_no_server(stream):
    """Whole blocks are read from NATS once; rows are the same, in whatever parts they are asked for."""
    await stream.add(RECORDS)
    whole, options, chance = await stream.from_stream(stream.task()), stream.options, Random(1)
    assert (whole, [0, 1]) == await stream.through_cache()
    with contextlib.ExitStack() as stack:
        cache = await asyncio.to_thread(stack.enter_context, open_cache(stream.root, options))
        await stream.server.stop()
        for _ in range(20):
            first, last = sorted(chance.sample(range(1, 2 * BLOCK + 1), 2))
            assert whole.slice(first - 1, last - first + 1) == table(cache.rows(options, stream.task(first, last)))


async def test_new_records_are_read_from_the_stream(stream):
    """The end of a stream isn't cached until a block is whole; parts of a block never are."""
    await stream.add(RECORDS)
    found, blocks = await stream.through_cache(stream.task(100, 2 * BLOCK - 1))
    assert (2 * BLOCK - 100, []) == (found.num_rows, blocks)
    for added, cached in (0, [0, 1]), (BLOCK, [0, 1, 2]):
        await stream.add(added)
        assert (await stream.from_stream(stream.task()), cached) == await stream.through_cache()


async def test_records_of_any_kind_are_the_same(stream):
    """Records without queues, some queues each, and messages that are no records."""
    bodies = [record(number, groups=number % 3) for number in range(1, 60)]
    await stream.put(*bodies, b"junk", b"", *bodies)
    await stream.add(RECORDS)
    whole = await stream.from_stream(stream.task())
    assert {None} < set(whole.column("problem").to_pylist())
    for _ in range(2):
        assert (whole, [0, 1]) == await stream.through_cache()


async def test_broken_block_is_read_again(stream):
    """A file may be cut off, damaged, or written by another program."""
    await stream.add(RECORDS)
    whole = await stream.read()
    [first, second] = sorted(stream.folder.glob("*.parquet"))
    sound, abandoned = second.read_bytes(), stream.folder / "_new-of-a-killed-report"
    abandoned.touch()
    os.utime(abandoned, (0, 0))
    first.write_bytes(b"no Parquet")
    middle = len(sound) // 2
    damaged = sound[:middle] + bytes(each ^ 255 for each in sound[middle : middle + 100]) + sound[middle + 100 :]
    for content in (sound[:middle], damaged):
        second.write_bytes(content)
        assert whole == await stream.read()
    pq.write_table(pa.table({"sequence": range(BLOCK)}), first)
    assert (whole, [0, 1]) == await stream.through_cache()
    assert {first, second} == set(stream.folder.iterdir())


async def test_expired_blocks_are_removed(stream):
    """Records that leave the stream leave the cache with the next report."""
    await stream.add(RECORDS)
    await stream.read()
    await stream.request("STREAM.PURGE.METER_online", {"seq": BLOCK + 100})
    assert [1] == await stream.blocks()
    await stream.request("STREAM.PURGE.METER_online")
    assert [] == await stream.blocks()


async def test_stream_with_a_gap_is_not_cached(stream):
    """Somebody has deleted a record, and a cached block has it."""
    await stream.add(RECORDS)
    assert [0, 1] == (await stream.through_cache())[1]
    await stream.request("STREAM.MSG.DELETE.METER_online", {"seq": 77})
    assert await stream.blocks() is None
    assert [] == list(stream.root.iterdir())


async def test_records_with_many_rows_are_not_cached(stream):
    """A cache of them would be large, and no faster than the stream."""
    queues = MOST_ROWS // BLOCK + 1
    await stream.add(BLOCK, queues)
    found, blocks = await stream.through_cache()
    assert (BLOCK * queues, []) == (found.num_rows, blocks)


async def test_new_stream_has_records_of_its_own(stream):
    """A stream that is deleted and created again starts at sequence 1."""
    await stream.add(RECORDS)
    await stream.read()
    await stream.request("STREAM.DELETE.METER_online")
    stream.last = 0
    await stream.add(RECORDS, queues=2)
    assert 2 * RECORDS == (await stream.read()).num_rows


async def test_restored_stream_has_records_of_its_own(stream, tmp_path):
    """After the restoration of a backup, the same sequences of the same stream are other records."""
    await stream.add(BLOCK + 100)
    await stream.copy_to(tmp_path / "backup")
    await stream.add(BLOCK)
    await stream.read()
    folder = stream.folder
    await stream.copy_to(tmp_path / "unused")
    assert [0, 1] == await stream.blocks()  # a restart changes nothing
    await stream.restore(tmp_path / "backup")
    stream.last = BLOCK + 100
    assert [] == await stream.blocks()  # the stream lacks the last record of the newest block
    await stream.add(BLOCK)
    assert [0, 1] == (await stream.through_cache())[1]
    await stream.restore(tmp_path / "backup")
    stream.last = BLOCK + 100
    await stream.add(BLOCK, queues=2)
    assert [] == await stream.blocks()  # it has another one
    assert (await stream.from_stream(stream.task()), [0, 1]) == await stream.through_cache()
    assert folder == stream.folder


async def test_one_report_at_a_time_uses_the_cache(stream):
    """The other one reads the stream."""
    await stream.add(RECORDS)
    with contextlib.ExitStack() as stack:
        await asyncio.to_thread(stack.enter_context, open_cache(stream.root, stream.options))
        assert await stream.blocks() is None
    assert [] == await stream.blocks()


async def test_cache_is_bounded(stream, monkeypatch):
    """It removes streams that no report has read for a month, and the oldest blocks of a large folder. On a full disk
    it stores no blocks.
    """
    await stream.add(RECORDS)
    await stream.read()
    other, strange = stream.root / "METER_another", stream.root / "strange"
    for folder in (other, strange):
        folder.mkdir()
        os.utime(folder, (0, 0))
    [first, _] = sorted(next(stream.root.glob("METER_online*")).glob("*.parquet"))
    os.truncate(first, 2 * MOST_BYTES)
    assert [1] == await stream.blocks()
    assert strange.exists()
    assert not other.exists()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: MagicMock(free=MOST_BYTES - 1))
    found, blocks = await stream.through_cache()
    assert (RECORDS, [1]) == (found.num_rows, blocks)


async def test_folder_that_can_not_be_written(stream):
    """As in a container with a read-only disk."""
    await stream.add(BLOCK)
    stream.root.write_text("no folder")
    assert await stream.blocks() is None


def test_user_without_a_home_has_no_cache(monkeypatch):
    """Such as a user ID without an account, in a container."""
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache/of-mine")
    assert Path("/var/cache/of-mine/evenlane/records") == default_root()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", MagicMock(side_effect=KeyError))
    assert default_root() is None


@given(st.integers(1, 10 * BLOCK), st.integers(0, 40 * BLOCK), st.integers(1, 8))
def test_limits_of_tasks_are_ends_of_blocks(first, length, most):
    """The tasks read the same, in order; a task that is small stays as it is."""
    planned = tasks([Range("METER_online", first, first + length)], most)
    aligned = align(planned)
    assert length == 0 or aligned[0].ranges[0].first == first
    assert [each.ranges[-1].last for each in planned[-1:]] == [each.ranges[-1].last for each in aligned[-1:]]
    limits = [(one.ranges[0].last, other.ranges[0].first) for one, other in pairwise(aligned)]
    assert all(other == one + 1 for one, other in limits)
    if length >= most * 2 * BLOCK:
        assert len(planned) - len(aligned) in (0, 1)
        assert all(last % BLOCK == 0 for last, _ in limits)


async def test_ingestion_reads_the_same_through_the_cache(stream, spark, tmp_path):
    """Rows of figures and counts: from the stream, while blocks are cached, and from these."""
    await stream.add(8 * BLOCK + 1_500)
    source, span = {"nats": stream.server.url, "what": "meter"}, SPANS["1h"]

    async def figures(name, cache, tasks_at_most=1):  # each task reduces its own rows
        given_source = source | {"partitions": str(tasks_at_most)}
        found = await asyncio.to_thread(partial(ingest, spark, given_source, tmp_path / name, span, cache=cache))
        return found.tally, [sorted(map(str, each.to_pylist())) for each in found.rows]

    direct = await figures("direct", None)
    by_four_tasks, _ = await figures("first", stream.root, tasks_at_most=4)
    assert (direct[0], list(range(8))) == (by_four_tasks, await stream.blocks())
    assert direct == await figures("second", stream.root)
    first = stream.folder / f"{0:012}.parquet"
    rows_of_first = pq.read_table(first)
    place = rows_of_first.schema.get_field_index("handled")
    pq.write_table(rows_of_first.set_column(place, rows_of_first.field(place), pa.array([5] * BLOCK)), first)
    assert direct != await figures("third", stream.root)  # it does read the blocks


@pytest.mark.full
async def test_command_and_job_use_the_cache_of_the_user(stream, tmp_path):
    """Unless `--no-cache` is given. The reports have the same tenants."""
    await load(stream.server.url, 8 * BLOCK, 1, began=int(time.time()) - 8 * BLOCK // 4 * 10, ends_now=True)
    cache, made = tmp_path / "user", []
    job = ["-m", "evenlane.spark.jobs.report"]
    command = ["-c", "from evenlane.engine.cli.main import main; main()", "report"]
    for number, (program, *options) in enumerate([(job, "--no-cache"), (command, "--no-cache"), (command,), (job,)]):
        out = tmp_path / f"report-{number}"
        arguments = ["--nats", stream.server.url, "--window", "1h", "--since", "12h", "--out", str(out), *options]
        environ = os.environ | {"XDG_CACHE_HOME": str(cache)}
        ended = await asyncio.create_subprocess_exec(sys.executable, *program, *arguments, env=environ)
        assert 0 == await ended.wait()
        assert cache.exists() == (not options)
        made.append(json.loads((out / "report.json").read_text())["tenants"])
    assert made[0]
    assert made == [made[0]] * 4
    [folder] = (cache / "evenlane" / "records").iterdir()
    assert 8 == len(list(folder.glob("*.parquet")))
