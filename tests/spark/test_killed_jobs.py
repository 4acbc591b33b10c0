"""Jobs that are killed and started again, on a real server (issue 8.4: survives kill -9 without counting twice)."""

import asyncio
import contextlib
import os
import signal
import sys
import time

import pytest

from evenlane.spark.jobs import tables
from evenlane.spark.schemas import METER
from tests.ledger.world import ProcessWorld
from tests.spark.source.records import DEAD, SECOND, Published, record
from tests.support.until import until

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.timeout(600)]
WITHIN_S = 120


class Job:
    """A job of its own, as `python -m` starts it."""

    def __init__(self, world, name, *arguments):
        self._environ = {**os.environ, "EVENLANE_NATS": world.servers.nats.url}
        self._command = (sys.executable, "-m", f"evenlane.spark.jobs.{name}", *arguments)

    @contextlib.asynccontextmanager
    async def killed(self, when):
        """Goes on while the block runs, and then until `when`, but no further: with the Java that it started."""
        process = await self._start("--every", "1 second")

        async def reached():
            assert process.returncode is None, (await process.communicate())[1]
            return when()

        yield
        await until(reached, WITHIN_S)
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()

    async def asked_to_end(self, when):
        """With all of its group, as `timeout` does."""
        process = await self._start("--every", "1 second")
        await until(when, WITHIN_S)
        os.killpg(process.pid, signal.SIGTERM)
        await process.communicate()
        assert 128 + signal.SIGTERM == process.returncode

    async def to_its_end(self):
        process = await self._start()
        _, output = await process.communicate()
        assert (0, b"") == (process.returncode, output)

    async def _start(self, *more):
        return await asyncio.create_subprocess_exec(
            *self._command, *more, env=self._environ, start_new_session=True,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip


class Fed:
    """A stream that gets records of now."""

    def __init__(self, stream):
        self._stream, self.last = stream, 0

    async def more(self, count):
        wanted = range(self.last + 1, self.last + count + 1)
        self.last = wanted[-1]
        await self._stream.put(*(record(number, at=time.time_ns() // SECOND * SECOND) for number in wanted))


async def test_tables_are_the_same_whenever_the_job_was_killed(tmp_path, spark):
    """Issue 8.4: in the middle of a batch, and after one: what it keeps is what a job that lived has."""
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        await stream.make(DEAD)
        kept, fed = tmp_path / "tables", Fed(stream)
        job = Job(world, "tables", "--tables", str(kept))
        await fed.more(20)
        async with job.killed(lambda: list(kept.glob("tenants/*"))):  # the grains are there, the tables half
            pass
        assert not (kept / "current.json").exists()
        async with job.killed((kept / "current.json").exists):
            await fed.more(20)
        before = len(list(kept.glob("grains/*")))
        async with job.killed(lambda: len(list(kept.glob("grains/*"))) > before):
            await fed.more(20)
        await job.to_its_end()
        at_once = tables.Tables(spark, str(tmp_path / "at-once"), None)
        rows = spark.read.format("evenlane").options(nats=world.servers.nats.url).load()
        await asyncio.to_thread(at_once.take, rows, "query-00000000")
        for table in tables.TABLES:
            for window in ("5m", "1h", "1d"):
                found = tables.read(spark, str(kept), table, window)
                wanted = tables.read(spark, str(tmp_path / "at-once"), table, window)
                assert sorted(wanted.collect(), key=repr) == sorted(found.collect(), key=repr), (table, window)
        [day] = tables.read(spark, str(kept), "tenants", "1d").collect()
        assert 3 * fed.last == day.handled


async def test_the_archive_has_each_record_once_whenever_the_job_was_killed(tmp_path, spark):
    """Issue 8.4: while it lays files down, and between two batches."""
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        archive, fed = tmp_path / "archive", Fed(stream)
        job = Job(world, "archive", "--archive", str(archive))
        await fed.more(20)
        async with job.killed(lambda: list(archive.glob("_staging/*"))):
            pass
        async with job.killed(lambda: list(archive.glob("day=*/hour=*/*.parquet"))):
            await fed.more(20)
        before = len(list(archive.glob("day=*/hour=*/*.parquet")))
        async with job.killed(lambda: len(list(archive.glob("day=*/hour=*/*.parquet"))) > before):
            await fed.more(20)
        await fed.more(20)
        before = len(list(archive.glob("day=*/hour=*/*.parquet")))
        await job.asked_to_end(lambda: len(list(archive.glob("day=*/hour=*/*.parquet"))) > before)
        await job.to_its_end()
        found = spark.read.format("evenlane").option("archive", str(archive)).load()
        assert METER.names == found.columns
        numbers = sorted(row.number for row in found.select("number").collect())
        assert sorted(3 * list(range(1, fed.last + 1))) == numbers
