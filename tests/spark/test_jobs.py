"""Jobs on hand-made tenants: the files of a report, the archive, tables that are kept current."""

import errno
import json
import os
import signal
import sys
from datetime import UTC, datetime
from types import MappingProxyType
from unittest.mock import MagicMock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from polars.exceptions import ComputeError
from polars.testing import assert_frame_equal
from py4j.protocol import Py4JNetworkError
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from evenlane.engine.errors import ConfigError, Unreachable
from evenlane.spark.failures import Failed, explained, sentence
from evenlane.spark.jobs import archive, report, streams, tables
from evenlane.spark.jobs.arguments import Arguments
from evenlane.spark.jobs.folders import Folder
from evenlane.spark.jobs.ingest import Records, RecordTally
from evenlane.spark.jobs.request import Period, options_of_dead, options_of_meter
from evenlane.spark.out import place
from evenlane.spark.out.quotas import apply_form
from evenlane.spark.reports.expressions import from_arrow
from evenlane.spark.reports.grains import Grains, grains
from evenlane.spark.reports.noisy import noisy
from evenlane.spark.reports.reduction import reduce_rows
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.schemas import DEAD, METER
from evenlane.spark.source.archive import files
from evenlane.spark.source.columns import arrow_schema
from evenlane.spark.source.options import ALWAYS
from tests.spark.reports import cases
from tests.spark.reports.rows import after


@pytest.fixture(scope="module")
def meter(spark):
    """Meter records."""
    return spark.createDataFrame(cases.rows(), METER).cache()


def young(spark):
    """Records of some minutes; messages of `growing` wait mostly for a higher priority, which waits for the quota."""
    rows = spark.createDataFrame(cases.young_and_others(), METER)
    behind = F.when(F.col("project") == "growing", 2 * F.col("waited_quota_s"))
    return rows.withColumn("waited_higher_priority_s", F.coalesce(behind, "waited_higher_priority_s"))


def records(meter, wanted, *, few=True):
    """What reading these rows gives."""
    tally = RecordTally(2, 1, {("node-1025", 1): 600_000_000})
    span = SPANS[wanted.window]
    if few:
        table = meter.toArrow().cast(arrow_schema(METER))
        return Records(reduce_rows(table, span, tally.behind), tally, few)
    found = grains(meter, span.grain_s, behind=tally.behind)
    return Records(Grains(*(frame.localCheckpoint() for frame in found)), tally, few)


@pytest.fixture
def parameters(tmp_path, spark, meter, monkeypatch):
    """The parameters of a report on those records."""
    [[first, last]] = meter.selectExpr("min(stored)", "max(stored)").collect()
    monkeypatch.setattr(report, "_records", lambda _, wanted, *__: records(meter, wanted))
    monkeypatch.setattr(report, "_dead", lambda *_: spark.createDataFrame(cases.dead_letters(), DEAD))
    return report.ReportRequest(
        tmp_path / "out", "online", None, window="5m", since=first.astimezone(), until=last.astimezone(),
        topics={"growing": {"qps": 10, "ordered": True}},
    )  # fmt: skip


def test_report_writes_page_json_parquet_and_quotas(parameters, spark, monkeypatch):
    """Recommended quotas are in the format of `topics apply`, and change only `qps`.

    X7: a report some minutes after the start has the same rates, trend and advice as later ones.
    """
    steps = []
    monkeypatch.setattr(report, "_records", lambda _, wanted, *__: records(young(spark), wanted))
    parameters = parameters._replace(window="1h", since=after(0), until=after(516))
    written = report.make(spark, parameters, lambda what, _share: steps.append(what))
    assert ["quotas.json", "report.html", "report.json", "tenants.parquet"] == written.files
    assert set(written.files) == {each.name for each in parameters.out.iterdir()}
    reported = json.loads((parameters.out / "report.json").read_text())
    assert json.loads(json.dumps(written.document)) == reported
    projects = {row["project"] for row in reported["tenants"]}
    assert {"growing", "shrinking", "hog", *cases.ODD} <= projects
    parquet = spark.read.parquet(str(parameters.out / "tenants.parquet"))
    rows = {row.project: row for row in parquet.collect()}
    assert projects == rows.keys()
    assert_incomplete_grains_count_by_their_length(rows["young"])
    [growing] = [row for row in reported["tenants"] if row["project"] == "growing"]
    assert ("higher_priority", "raise") == (growing["top_cause"], growing["advice"])
    noticed = next(each for each in reported["attention"] if each["project"] == "growing")
    assert ("over_quota", "over quota 1.2 x") == (noticed["status"], noticed["label"])
    quotas = json.loads((parameters.out / "quotas.json").read_text())
    assert {"growing": {"qps": growing["recommended_qps"], "ordered": True}} == quotas
    assert [] != reported["noisy"]
    assert {"adding up 1 record with 2 rows", f"writing to {parameters.out}"} <= set(steps)


def assert_incomplete_grains_count_by_their_length(row):
    assert (7320, 366.0, 183.0) == (row.backlog, row.covered_s, row.oldest_s)
    # a grain has the nodes' reports up to an interval before its end
    assert [1.0, 1.0, 20.0, 40.0] == pytest.approx([row.quota_used, row.quota_peak, row.trend, row.arrival_rate], 0.06)
    assert ("raise", 51.0) == (row.advice, row.recommended_qps)  # 40/s, the backlog within an hour, a fifth more
    # a message that arrives an hour after the start will wait an hour
    assert ("low", pytest.approx(7200 - 366, abs=200)) == (
        row.miss_priority,
        (row.miss_at - after(516).replace(tzinfo=None)).total_seconds(),
    )


@pytest.mark.full
@pytest.mark.parametrize("left", [0, 1])
def test_report_of_no_or_one_record_is_complete(parameters, spark, meter, monkeypatch, left):
    """The window is longer than the data."""
    few = meter.where("project = 'one-record'").limit(left)
    monkeypatch.setattr(report, "_records", lambda _, wanted, *__: records(few, wanted, few=False))
    monkeypatch.setattr(report, "_dead", lambda *_: spark.createDataFrame([], DEAD))
    written = report.make(spark, parameters._replace(window="1d"), lambda *_: None)
    reported = written.document
    assert left == len(reported["tenants"]) == spark.read.parquet(str(parameters.out / "tenants.parquet")).count()
    assert (3 * left, left) == (sum(each["backlog"] for each in reported["tenants"]), len(reported["quality"]))
    assert "report.html" in written.files


def test_reads_end_at_the_start_of_the_report(tmp_path):
    """The stream grows while it is read more than once, and each read must see the same messages."""
    now = datetime(2026, 1, 31, 8, tzinfo=UTC)
    open_end = report.ReportRequest(tmp_path, "online", {"nats": "nats://a:1"})
    period = Period(now, now, now)
    seen = [options_of_meter(open_end, period), options_of_dead(open_end.source, period)]
    assert ["meter", "dead"] == [each["what"] for each in seen]
    assert {"2026-01-31T08:00:00Z"} == {each["until"] for each in seen}
    assert "empty" == seen[1]["missing"]  # there may be no stream of dead letters yet


def test_unreachable_server_is_reported_before_spark_starts(tmp_path):
    with pytest.raises(Unreachable, match=r"nats://127\.0\.0\.1:1 does not answer"):
        report.ask(report.ReportRequest(tmp_path, "online", {"nats": "nats://127.0.0.1:1"}))


def test_failed_report_leaves_the_previous_one(parameters, spark, monkeypatch):
    """Spark's error is one sentence."""
    parameters.out.mkdir()
    (parameters.out / "report.json").write_text("previous")
    broken = spark.range(1).selectExpr("raise_error('the disk is full') AS project")
    monkeypatch.setattr(report, "tenants", lambda *_: broken)
    with pytest.raises(Failed, match="the disk is full") as failed:
        report.make(spark, parameters, lambda *_: None)
    assert "\n" not in str(failed.value)
    assert ["report.json"] == [each.name for each in parameters.out.iterdir()]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/out/part-00000.parquet"),
         "/out/part-00000.parquet: No space left on device"),
        (ComputeError("expanded paths were empty\nmore"), "expanded paths were empty"),
    ],
)  # fmt: skip
def test_error_of_a_file_is_one_sentence(error, text):
    with pytest.raises(Failed) as failed, explained():
        raise error
    assert text == str(failed.value)


@pytest.mark.full
def test_report_of_many_records_equals_that_of_few(parameters, spark, meter, monkeypatch):
    """The driver computes both, and Spark writes the tenants of many."""
    found = []
    for few in (True, False):
        read = records(meter, parameters)._replace(few=few)
        monkeypatch.setattr(report, "_records", lambda *_, read=read: read)
        document = report.make(spark, parameters, lambda *_: None).document
        found.append({name: value for name, value in document.items() if name != "made_at"})
        [times] = {
            each.type for each in pq.read_table(parameters.out / "tenants.parquet").schema if each.name == "late_since"
        }
        assert pa.timestamp("us", tz="UTC") == times
    assert found[0] == found[1]


def test_archive_has_each_record_of_a_repeated_batch_once(tmp_path, spark, meter):
    """Parquet by day and hour."""
    folder = Folder(spark, str(tmp_path))
    for batch in ("query-00000000", "query-00000000", "query-00000001"):
        archive.write_batch(meter, folder, batch)
    files = list(tmp_path.glob("day=*/hour=*/*.parquet"))
    assert {"query-00000000", "query-00000001"} == {each.name[:14] for each in files}
    assert not (tmp_path / "_staging").exists() or not list((tmp_path / "_staging").iterdir())
    found = spark.read.schema(METER).parquet(*map(str, files))
    assert 2 * meter.count() == found.count()
    assert [] == found.exceptAll(meter.unionByName(meter)).take(1)


def test_interrupted_batch_of_the_archive_is_completed_without_the_stream(tmp_path, spark, meter, monkeypatch):
    """It counts once it is complete. The stream is empty when the batch is repeated."""
    folder, path = Folder(spark, str(tmp_path)), str(tmp_path)
    archive.write_batch(meter, folder, "query-00000000")
    first = set(files(path, ALWAYS))
    rename, done = Folder.rename, []

    def killed(self, *names):
        if done:
            raise InterruptedError
        done.append(names)
        rename(self, *names)

    monkeypatch.setattr(Folder, "rename", killed)
    with pytest.raises(InterruptedError):
        archive.write_batch(meter.repartition(2), folder, "query-00000001")  # two files
    assert len(list(tmp_path.glob("day=*/hour=*/*.parquet"))) == len(first) + 1
    assert first == set(files(path, ALWAYS)) == set(files(f"{path}/", ALWAYS))
    monkeypatch.setattr(Folder, "rename", rename)
    for _ in range(2):
        archive.write_batch(meter.limit(0), folder, "query-00000001")
        found = spark.read.schema(METER).parquet(*files(path, ALWAYS))
        assert [] == found.exceptAll(meter.unionByName(meter)).take(1)
        assert 2 * meter.count() == found.count()
    assert not list(tmp_path.glob("_staging/*"))


@pytest.mark.parametrize(
    ("java_too", "text"), [(False, ""), (True, "evenlane: ended in the middle of a batch: the next run repeats it\n")]
)
def test_sigterm_ends_a_continuous_job_in_order(capsys, monkeypatch, java_too, text):
    """Also if the signal went to the whole group, and Java has ended."""
    monkeypatch.setattr(streams, "hush", lambda _: None)  # it silences a process that is about to end
    ends = []

    class Query:
        status = MappingProxyType({"isTriggerActive": False})

        def awaitTermination(self, _seconds):  # noqa: N802 - Spark's name
            os.kill(os.getpid(), signal.SIGTERM)
            if java_too:
                sys.stderr.write("a thread's traceback")
                raise Py4JNetworkError

        def stop(self):
            ends.append("stopped")

    chain, folder = MagicMock(), MagicMock()
    writer = chain.readStream.format().options().load().writeStream.foreachBatch().option()
    writer.trigger().start.return_value = Query()
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        streams.run(chain, {}, folder, lambda *_: None, every="1 second", announce=streams.silent)
    assert (143, ["stopped"], before) == (ended.value.code, ends, signal.getsignal(signal.SIGTERM))
    assert text == capsys.readouterr().err


@pytest.mark.parametrize(
    ("message", "starts"), [("Query terminated: Python worker failed to connect back.", 6), ("Query terminated: no", 1)]
)
def test_query_starts_again_only_if_no_python_worker_started(message, starts):
    begun = []

    def run():
        begun.append(1)
        raise StreamingQueryException(message)

    with pytest.raises(StreamingQueryException, match=message):
        streams.until_workers_start(run)
    assert starts == len(begun)


@pytest.mark.parametrize("error", [Py4JNetworkError("gone"), ConnectionRefusedError(111, "Connection refused")])
def test_end_of_java_is_one_sentence(error):
    """Java was killed, or ran out of memory."""
    with pytest.raises(Failed, match="Java has ended in the middle of its work"), explained():
        raise error


@pytest.mark.parametrize(("text", "as_spark"), [("1 minute", "1 minute"), ("1m", "60000 milliseconds")])
def test_interval_is_accepted_in_both_formats(text, as_spark):
    arguments = Arguments("")
    arguments.every()
    assert as_spark == arguments.parse(["--every", text])[0].every
    with pytest.raises(SystemExit) as wrong:
        arguments.parse(["--every", "nonsense"])
    assert 2 == wrong.value.code


def test_kind_of_input_is_no_option_of_a_job(capsys):
    with pytest.raises(SystemExit) as wrong:
        Arguments("").parse(["--option", "what=dead"])
    assert (2, True) == (wrong.value.code, "what is read is the job's own matter" in capsys.readouterr().err)


@pytest.mark.parametrize("name", ["a[1]", "a{x,y}", "a*"])
def test_folder_that_spark_takes_for_a_pattern_is_refused(spark, tmp_path, name):
    """Spark wouldn't find its own files again."""
    with pytest.raises(ConfigError, match="which Spark takes for a pattern"):
        Folder(spark, str(tmp_path / name))
    with pytest.raises(ConfigError, match="which Spark takes for a pattern"):
        place.check(tmp_path / name)
    assert [] == list(tmp_path.iterdir())


def test_unknown_kind_of_url_is_refused(spark):
    with pytest.raises(Failed, match="No FileSystem for scheme"):
        Folder(spark, "nowhere://bucket/folder")


@pytest.mark.parametrize(
    ("table", "window", "text"), [("nope", "1h", "no table 'nope'"), ("noisy", "2h", "window '2h'")]
)
def test_unknown_table_or_window_is_refused(spark, tmp_path, table, window, text):
    with pytest.raises(ConfigError, match=text):
        tables.read(spark, str(tmp_path), table, window)


def test_tables_count_a_repeated_batch_once(tmp_path, spark, meter, monkeypatch):
    """After a kill before or after the batch is complete. test_killed_jobs.py has a real kill."""
    monkeypatch.setattr(tables, "SPANS", {"5m": SPANS["5m"]})
    kept = tables.ReportTables(spark, str(tmp_path), None)
    kept.add_batch(meter.where("number % 2 = 1 OR number IS NULL"), "query-00000000")
    before = _rows(spark, tmp_path)

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.add_batch(meter, "query-00000001")
    assert before == _rows(spark, tmp_path)
    kept.add_batch(meter, "query-00000001")
    after = _rows(spark, tmp_path)
    assert before != after
    kept.add_batch(meter, "query-00000001")
    assert after == _rows(spark, tmp_path)
    rows, loud = (from_arrow(tables.read(spark, str(tmp_path), each, "5m").toArrow()) for each in ("tenants", "noisy"))
    assert len(loud)
    assert_frame_equal(loud, noisy(rows.lazy()).collect(), check_row_order=False)
    monkeypatch.setattr(tables, "_MOST_PARTS", 2)
    kept.add_batch(meter, "query-00000002")
    assert ["grains/query-00000002-whole"] == kept.current()["grains"]
    assert after == _rows(spark, tmp_path)
    folders = {str(each.relative_to(tmp_path)) for each in tmp_path.glob("*/*")}
    batches = {f"{table}/query-0000000{n}" for table in tables.TABLES for n in (1, 2)}  # for present readers
    grains = {f"grains/query-0000000{n}" for n in (0, 1)}
    assert {*batches, *grains, "grains/query-00000002-whole"} == folders


def _rows(spark, path):
    return [sorted(tables.read(spark, str(path), table, "5m").collect(), key=repr) for table in tables.TABLES]


def test_quotas_of_unknown_topics_are_left_out():
    """`apply` takes complete topics."""
    advised = [{"project": "acme", "recommended_qps": 5.0}, {"project": "gone", "recommended_qps": 1.0}]
    assert {"acme": {"qps": 5.0, "ttl": 60}} == apply_form(
        advised, {"acme": {"ttl": 60, "qps": 9}, "other": {"qps": 1}}
    )


def test_error_of_a_worker_becomes_one_sentence():
    text = (
        '[PYTHON_DATA_SOURCE_ERROR] Failed: Traceback (most recent call last):\n  File "x.py", line 1, in read\n'
        "    raise Unreachable(why)\nengine.errors.Unreachable: no NATS server answers at nats://a:1\n\n\tat org.apache"
    )
    assert "no NATS server answers at nats://a:1" == sentence(text)
    streamed = (
        text.partition("\n\n")[0] + "\n SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: [id = 1]\n\nPlan:\n~Write"
    )
    assert "no NATS server answers at nats://a:1" == sentence(streamed)
    thrown = "An error occurred while calling o7.parquet.\n: java.io.IOException: No space left on device\n\tat java"
    assert "No space left on device" == sentence(thrown)
    assert "[UNRESOLVED] no column" == sentence("[UNRESOLVED] no column\nmore")
