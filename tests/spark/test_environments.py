"""E1: folders of one environment refuse records of another, on a real server."""

import asyncio
import shutil

import pytest
from pyspark.errors import PySparkException

from evenlane.engine.errors import ConfigError
from evenlane.spark.failures import Failed
from evenlane.spark.jobs import archive, tables
from tests.ledger.world import ProcessWorld
from tests.spark.source.records import Published, record

pytestmark = pytest.mark.real
REFUSAL = "holds records of the environment online, not staging: name another folder"


async def test_folder_belongs_to_one_environment(tmp_path, spark):
    """E1: a job for another environment is refused and writes nothing, and so is a report over both."""
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        await stream.put(*(record(n) for n in range(1, 6)))
        online, staging = ({"nats": world.servers.nats.url, "env": env} for env in ("online", "staging"))
        path, kept = tmp_path / "archive", tmp_path / "tables"
        with pytest.raises(Failed, match="no stream METER_staging"):
            await asyncio.to_thread(archive.run, spark, staging, str(path))
        await asyncio.to_thread(archive.run, spark, online, str(path))  # the failed attempt has not claimed the folder
        before = sorted(path.rglob("*"))
        kept.mkdir()
        shutil.copy(path / "_environment", kept)
        for job, folder in ((archive.run, path), (tables.keep_current, kept)):
            with pytest.raises(ConfigError, match=REFUSAL):
                await asyncio.to_thread(job, spark, staging, str(folder))
        assert before == sorted(path.rglob("*"))
        alone, both, mixed = (
            spark.read.format("evenlane").options(archive=str(path), **options).load()
            for options in ({"env": "any"}, online, staging)
        )
        assert alone.count() == both.count() == 15
        with pytest.raises(PySparkException, match=REFUSAL):
            mixed.count()
