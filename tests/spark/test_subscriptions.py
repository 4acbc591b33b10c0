"""Meter records of a named subscription, on a real server (K10)."""

import asyncio

import pyarrow.parquet as pq
import pytest

from evenlane.engine.errors import ConfigError
from evenlane.engine.store.jetstream.stream_configs import meter_config, settled_config
from evenlane.spark.jobs import archive
from evenlane.spark.jobs.report import ask, make
from evenlane.spark.jobs.request import ReportRequest
from tests.ledger.world import ProcessWorld
from tests.spark.source.records import Published, record

pytestmark = pytest.mark.real


async def test_reports_and_archives_are_of_one_subscription(tmp_path, spark):
    """K10: the unnamed one by default. One that isn't there is one sentence, which lists those that are."""
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        await stream.make(settled_config("online_audit", "file", 1))
        await stream.make(meter_config("online_audit", "file", 1, 86_400))
        await stream.put(*(record(n) for n in range(1, 3)))
        await stream.put(*(record(n) for n in range(1, 6)), subject="meter.online_audit.audit-1")
        unnamed = {"nats": world.servers.nats.url}
        own, wrong = ({**unnamed, "subscription": name} for name in ("audit", "audt"))

        def read(**options):
            rows = spark.read.format("evenlane").options(**options).load()
            return {
                (row.subscription, row.node, row["count"])
                for row in rows.groupBy("subscription", "node").count().collect()
            }

        assert {("", "node-1", 6)} == read(**unnamed)
        assert {("audit", "node-1", 15)} == read(**own)
        sentence = "environment 'online' has no subscription 'audt': there are audit, and the one without a name"
        with pytest.raises(Exception, match=sentence):
            read(**wrong)

        path = tmp_path / "archive"
        await asyncio.to_thread(archive.run, spark, own, str(path))
        assert {("audit", "node-1", 15)} == read(archive=str(path), **own)
        with pytest.raises(
            ConfigError, match="holds records of subscription 'audit', not of the subscription without a"
        ):
            await asyncio.to_thread(archive.run, spark, unnamed, str(path))

        def report(subscription, source):
            return ReportRequest(tmp_path / "report", "online", source, formats=["json"], subscription=subscription)

        with pytest.raises(Exception, match=sentence):
            await asyncio.to_thread(ask, report("audt", wrong))
        made = await asyncio.to_thread(make, spark, report("audit", own), lambda *_: None)
        assert "audit" == made.document["subscription"]
        assert ["report.json"] == made.files


async def test_archive_of_an_older_release_has_the_unnamed_subscription(tmp_path, spark):
    """K10: its files lack the column."""
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        await stream.put(record(1))
        path = tmp_path / "archive"
        await asyncio.to_thread(archive.run, spark, {"nats": world.servers.nats.url}, str(path))
    for file in path.glob("day=*/hour=*/*.parquet"):
        pq.write_table(pq.ParquetFile(file).read().drop_columns(["subscription"]), file)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    rows = spark.read.format("evenlane").options(archive=str(path)).load().collect()
    assert {("", "node-1")} == {(row.subscription, row.node) for row in rows}
