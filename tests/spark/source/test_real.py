"""The data source on real servers: meter records, backlogs and dead letters, in batches and as streams."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from polars.testing import assert_frame_equal
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import EqualTo

from evenlane.engine.errors import ConfigError
from evenlane.spark.failures import sentence
from evenlane.spark.jobs.ingest import ingest, read_few, reduce_few
from evenlane.spark.jobs.streams import until_workers_start
from evenlane.spark.reports.grains import Grains, merge_grains
from evenlane.spark.reports.node_records import count_records
from evenlane.spark.reports.reduction import REDUCED, ReducedRows
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.timeline import find_timeline
from evenlane.spark.schemas import METER
from evenlane.spark.source.datasource import EvenlaneSource
from tests.ledger.puts import some
from tests.ledger.world import ProcessWorld
from tests.spark.reports.rows import flat
from tests.spark.source.records import Published, record
from tests.support.until import until

pytestmark = pytest.mark.real


def source(spark, world, **options):
    options = {"nats": world.servers.nats.url, **options}
    return spark.read.format("evenlane").options(**options).load()


def repeated(world):
    """The first sequences of a batch with all messages, and of a batch of an earlier stream of the same name."""
    reader = EvenlaneSource({"nats": world.servers.nats.url}).streamReader(METER)
    now = reader.reportLatestOffset()
    previous = {name: ["earlier", last] for name, (_, last) in now.items()}
    return tuple([each.first for task in reader.partitions({}, end) for each in task.ranges] for end in (now, previous))


def read_by(world, *filters):
    """The rows that Spark gets if it pushes these filters down."""
    reader = EvenlaneSource({"nats": world.servers.nats.url, "pushdown": "true"}).reader(METER)
    assert list(filters) == list(reader.pushFilters(list(filters)))  # Spark checks each row as well
    return [row for task in reader.partitions() for batch in reader.read(task) for row in batch.to_pylist()]


def assert_report_reads_the_same(spark, world, folder):
    """By the driver and by tasks: rows and counts."""
    given = {"nats": world.servers.nats.url, "what": "meter"}
    span = SPANS["5m"]
    few, many = reduce_few(read_few(given, METER), span), ingest(spark, given, folder, span, local_rows=0)
    local = ingest(spark, given, folder / "local", span)
    assert few.tally == many.tally == local.tally
    known = Grains(*(spark.createDataFrame(*each) for each in zip(few.rows, REDUCED, strict=True)))
    assert (4_504, 1_502, {"node-1", "node-2"}) == (
        few.tally.rows, few.tally.records, {node for node, _ in few.tally.quickest_us}
    )  # fmt: skip
    assert min(known.levels.count(), known.records.count()) > 0
    by_driver, by_tasks = (each._replace(waits=flat(each.waits)) for each in (known, many.rows))
    for one, other in zip(by_driver, merge_grains(by_tasks), strict=True):
        assert one.count() == other.count()
        assert [] == one.exceptAll(other).take(1)
    assert isinstance(local.rows, ReducedRows)  # which the driver has read from the files of the tasks
    ours, theirs = find_timeline(local.rows), find_timeline(many.rows)
    assert ours.extent == theirs.extent
    assert_frame_equal(ours.epochs, theirs.epochs)
    assert_frame_equal(ours.runs, theirs.runs, check_row_order=False)
    counted = [count_records(each, span.window_s) for each in (local.rows, many.rows, few.rows)]
    for each in counted[1:]:
        assert_frame_equal(counted[0], each, check_row_order=False, check_dtypes=False)


def refusal(work):
    with pytest.raises(PySparkException) as caught:
        work()
    return sentence(str(caught.value))


async def test_meter_records_are_read_once_and_filtered(spark, tmp_path):
    """The number of tasks fits the number of messages; junk is a row of its own; a missing stream is one sentence."""
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        assert 0 == source(spark, world).count()  # an empty stream
        await stream.put(*(record(n) for n in range(1, 1_501)))
        await stream.put(record(1, node="node-2"), subject="meter.online.node-2")
        await stream.put(b"junk", subject="meter.online.who.knows")
        frame = source(spark, world, partitions=16)
        assert 7 == frame.rdd.getNumPartitions()  # 1,502 messages: too few for more
        by_number = frame.groupBy("node").agg(
            F.count("project").alias("rows"), F.max("handled").alias("most"), F.count_distinct("sequence").alias("n"),
            F.count("problem").alias("bad"),
        )  # fmt: skip
        found = {row.node: tuple(row)[1:] for row in by_number.collect()}
        assert {"node-1": (4_500, 1_500, 1_500, 0), "node-2": (3, 1, 1, 0), "who.knows": (0, None, 1, 1)} == found
        assert 3 == frame.where("node = 'node-2'").count()
        read = await asyncio.to_thread(read_by, world, EqualTo(("node",), "node-2"))
        assert 3 == len(read)  # only its subject
        pushing = source(spark, world, pushdown="true")
        assert 3 == pushing.where("node = 'node-2'").count()
        shared = source(spark, world)
        none = shared.where(F.col("stored") > F.lit(datetime.now(UTC) + timedelta(hours=1)))
        assert (0, 4_504) == (none.count(), shared.count())  # a query doesn't narrow the next one
        await asyncio.to_thread(assert_report_reads_the_same, spark, world, tmp_path)
        assert 0 == source(spark, world, until="1h").count()
        later = datetime.now(UTC) + timedelta(hours=1)
        assert 0 == frame.where(F.col("stored") > F.lit(later)).count()

        assert "no stream METER_other: no node of environment 'other'" in refusal(
            source(spark, world, env="other").count
        )
        assert "there is no option 'whta'; did you mean what?" in refusal(lambda: source(spark, world, whta="meter"))
        dead_letters = source(spark, world, what="dead", missing="empty")  # as for a report before the stream exists
        assert 0 == dead_letters.count()
        plain = EvenlaneSource({"archive": str(tmp_path)})
        with pytest.raises(ConfigError, match="an archive is read by"):
            plain.streamReader(METER)
        gone = source(spark, world, nats="nats://127.0.0.1:1")
        assert "NATS at nats://127.0.0.1:1 does not answer" in refusal(gone.count)


async def test_lanes_are_the_true_backlog_and_dead_letters_are_rows(spark, tmp_path):
    """E11: handled messages are left out, even if their lane still has them behind those of a paused topic; delayed
    messages are included; bodies on request.
    """
    async with ProcessWorld(tmp_path, settle_interval=0.05) as world:
        node = await world.node(concurrency=4)
        await world.topics("open", "closed", groups=1, max_attempts=1)
        await world.topics("closed", state="paused")
        producer = await world.producer()
        await world.put(producer, some("closed", "waits", 30, body=b"four"))
        await world.put(producer, some("open", "quick", 20))
        await world.handled(*(f"open-quick-{n}" for n in range(20)))
        await producer.put("closed", b"later", delay=3_600, id="delayed", priority="high", key="k")
        await producer.put_many(some("open", "bad", 3, order="reject"))
        await until(lambda: len(world.ids("fail")) == 3)
        await node.stop()

        waiting = source(spark, world, what="lanes")
        rows = waiting.collect()
        assert 31 == len(rows)
        assert {"closed"} == {row.project for row in rows}
        assert {f"closed-waits-{n}" for n in range(30)} | {"delayed"} == {row.id for row in rows}
        [delayed] = [row for row in rows if row.kind == "later"]
        assert ("high", "k", 5, None) == (delayed.priority, delayed.key, delayed.size, delayed.body)
        assert timedelta(minutes=59) < delayed.due_at - delayed.stored < timedelta(minutes=61)
        bodies = source(spark, world, what="lanes", payload="true").where("kind = 'lanes' and project = 'closed'")
        assert [(b"four", 30)] == [tuple(row) for row in bodies.groupBy("body").count().collect()]

        dead_letters = source(spark, world, what="dead").orderBy("id").collect()
        assert [f"open-bad-{n}" for n in range(3)] == [row.id for row in dead_letters]
        assert {("open", "mid", 1, "rejected", "as ordered")} == {
            (r.project, r.priority, r.attempts, r.reason, r.error) for r in dead_letters
        }


def run_to_end(writer):
    """Run a stream until all that is there is read."""
    until_workers_start(lambda: writer.trigger(availableNow=True).start().awaitTermination())


async def test_stream_reads_each_record_once_also_after_recreation(spark, tmp_path):
    """Available-now continues where the last run ended, in batches of the configured size."""
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        seen, sizes = [], []

        def run():
            def each(frame, _):
                numbers = [row.number for row in frame.select("number").collect()]
                seen.extend(numbers)
                sizes.append(len(numbers))

            rows = spark.readStream.format("evenlane").options(nats=world.servers.nats.url, max_messages=4).load()
            writer = rows.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "checkpoint"))
            run_to_end(writer)

        await stream.put(*(record(n, groups=1) for n in range(1, 7)))
        run()
        assert [1, 2, 3, 4, 5, 6] == sorted(seen)
        assert 4 == max(sizes)
        await stream.put(record(7, groups=1))
        run()
        assert [1, 2, 3, 4, 5, 6, 7] == sorted(seen)
        await stream.delete()
        await stream.make()
        await stream.put(record(8, groups=1), record(9, groups=1))
        run()
        assert [1, 2, 3, 4, 5, 6, 7, 8, 9] == sorted(seen)
        # a batch that is repeated after a kill has no message of the new stream
        assert ([1], []) == await asyncio.to_thread(repeated, world)


async def test_empty_streams_are_read_from_their_first_message(spark, tmp_path):
    """Lanes, most of which are unused, and dead letters before the first one."""
    async with ProcessWorld(tmp_path) as world:
        node = await world.node(concurrency=4)
        await world.topics("acme", groups=1, max_attempts=1)
        await world.topics("still", groups=1, state="paused")
        producer = await world.producer()

        def run(what):
            found = []
            rows = spark.readStream.format("evenlane").options(nats=world.servers.nats.url, what=what).load()
            writer = rows.writeStream.foreachBatch(lambda frame, _: found.extend(row.id for row in frame.collect()))
            run_to_end(writer.option("checkpointLocation", str(tmp_path / what)))
            return sorted(found)

        assert [] == run("dead")
        await producer.put_many([*some("acme", "bad", 2, order="reject"), *some("still", "kept", 2)])
        await until(lambda: len(world.ids("fail")) == 2)
        await node.stop()
        # ended messages may have been removed already
        assert ["still-kept-0", "still-kept-1"] == [own for own in run("lanes") if not own.startswith("acme")]
        assert ["acme-bad-0", "acme-bad-1"] == run("dead")
        await producer.put_many(some("acme", "more", 1))
        assert ["acme-more-0"] == run("lanes")


async def test_archive_outlives_the_stream(spark, tmp_path):
    """Archived hours, alone or with newer messages of the stream; only the hours in the time range are read."""
    async with ProcessWorld(tmp_path) as world, Published(world) as stream:
        await stream.put(*(record(n, groups=1) for n in range(1, 6)))
        archive = str(tmp_path / "archive")
        hours = {"day": F.date_format("stored", "yyyy-MM-dd"), "hour": F.date_format("stored", "HH")}
        source(spark, world).withColumns(hours).write.partitionBy("day", "hour").parquet(archive)
        await stream.put(record(6, groups=1))
        assert [1, 2, 3, 4, 5, 6] == numbers(source(spark, world, archive=archive))
        await stream.delete()
        alone = spark.read.format("evenlane").option("archive", archive)
        assert [1, 2, 3, 4, 5] == numbers(alone.load())
        stored = alone.load().where("number = 3").collect()[0].stored.replace(tzinfo=UTC)
        from_third, later = (
            alone.option("since", at.isoformat().replace("+00:00", "Z")).load()
            for at in (stored, stored + timedelta(hours=3))
        )
        assert ([3, 4, 5], [5], []) == (numbers(from_third), numbers(from_third.where("number > 4")), numbers(later))
        before = alone.option("since", "1h").option("until", stored.isoformat().replace("+00:00", "Z")).load()
        assert [1, 2] == numbers(before)
        missing = spark.read.format("evenlane").option("archive", str(tmp_path / "nowhere")).load()
        assert "option archive: there is no folder" in refusal(missing.count)


def numbers(frame):
    return sorted(row.number for row in frame.select("number").collect())
