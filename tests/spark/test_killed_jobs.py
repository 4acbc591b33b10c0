"""Jobs that are killed and restarted, on a real server: they survive kill -9 without counting twice."""

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
TIMEOUT_S = 300


class Job:
    """A job as a process, as `python -m` starts it."""

    def __init__(self, world, name, *arguments):
        self._environ = {**os.environ, "EVENLANE_NATS": world.servers.nats.url}
        self._command = (sys.executable, "-m", f"evenlane.spark.jobs.{name}", *arguments)

    @contextlib.asynccontextmanager
    async def killed(self, when):
        """Run while the block runs, then until `when`; then kill it, with the Java that it started."""
        process = await self._start("--every", "1 second")

        async def reached():
            assert process.returncode is None, (await process.communicate())[1]
            return when()

        try:
            yield
            await until(reached, TIMEOUT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()

    async def asked_to_end(self, when):
        """Send SIGTERM to its process group, as `timeout` does."""
        process = await self._start("--every", "1 second")
        try:
            await until(when, TIMEOUT_S)
        finally:
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


class Feed:
    """Adds records with the present time to a stream."""

    def __init__(self, stream):
        self._stream, self.last = stream, 0

    async def more(self, count):
        numbers = range(self.last + 1, self.last + count + 1)
        self.last = numbers[-1]
        await self._stream.put(*(record(number, at=time.time_ns() // SECOND * SECOND) for number in numbers))


async def test_tables_survive_kills_of_the_job(tmp_path, spark):
    """In the middle of a batch, and after one: the tables equal those of an uninterrupted job."""
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        await stream.make(DEAD)
        kept, feed = tmp_path / "tables", Feed(stream)
        job = Job(world, "tables", "--tables", str(kept))
        await feed.more(20)
        async with job.killed(lambda: list(kept.glob("tenants/*"))):  # the grains are complete, the tables aren't
            pass
        assert not (kept / "current.json").exists()
        async with job.killed((kept / "current.json").exists):
            await feed.more(20)
        before = len(list(kept.glob("grains/*")))
        async with job.killed(lambda: len(list(kept.glob("grains/*"))) > before):
            await feed.more(20)
        await job.to_its_end()
        at_once = tables.ReportTables(spark, str(tmp_path / "at-once"), None)
        rows = spark.read.format("evenlane").options(nats=world.servers.nats.url).load()
        await asyncio.to_thread(at_once.add_batch, rows, "query-00000000")
        for table in tables.TABLES:
            for window in ("5m", "1h", "1d"):
                found = tables.read(spark, str(kept), table, window)
                wanted = tables.read(spark, str(tmp_path / "at-once"), table, window)
                assert sorted(wanted.collect(), key=repr) == sorted(found.collect(), key=repr), (table, window)
        [day] = tables.read(spark, str(kept), "tenants", "1d").collect()
        assert 3 * feed.last == day.handled


async def test_archive_has_each_record_once_after_kills_of_the_job(tmp_path, spark):
    """While it moves files, and between two batches."""
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        archive, feed = tmp_path / "archive", Feed(stream)
        job = Job(world, "archive", "--archive", str(archive))
        await feed.more(20)
        async with job.killed(lambda: list(archive.glob("_staging/*"))):
            pass
        async with job.killed(lambda: list(archive.glob("day=*/hour=*/*.parquet"))):
            await feed.more(20)
        before = len(list(archive.glob("day=*/hour=*/*.parquet")))
        async with job.killed(lambda: len(list(archive.glob("day=*/hour=*/*.parquet"))) > before):
            await feed.more(20)
        await feed.more(20)
        before = len(list(archive.glob("day=*/hour=*/*.parquet")))
        await job.asked_to_end(lambda: len(list(archive.glob("day=*/hour=*/*.parquet"))) > before)
        await job.to_its_end()
        found = spark.read.format("evenlane").option("archive", str(archive)).load()
        assert METER.names == found.columns
        numbers = sorted(row.number for row in found.select("number").collect())
        assert sorted(3 * list(range(1, feed.last + 1))) == numbers
