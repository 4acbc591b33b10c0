"""Makes a report: reads meter records and dead letters, computes the tables, writes page, JSON, Parquet and quotas.

python -m evenlane.spark.jobs.report --out DIR --window 1h
spark-submit --master ... report.py      (examples/spark-operator): driver and executors must share the folder DIR
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import polars as pl

from evenlane.engine.admin.export.client import StreamReader
from evenlane.engine.admin.export.connect import connect
from evenlane.engine.base.plural import format_count
from evenlane.engine.errors import ConfigError
from evenlane.spark.failures import explained
from evenlane.spark.jobs import archive
from evenlane.spark.jobs.arguments import Arguments, run, when
from evenlane.spark.jobs.ingest import FEW_RECORDS, count_messages, ingest, read_few, reduce_few
from evenlane.spark.jobs.record_cache import default_root
from evenlane.spark.jobs.request import (
    FORMATS,
    Period,
    ReportRequest,
    options_of_dead,
    options_of_meter,
    period_of,
    range_of,
)
from evenlane.spark.jobs.table_store import store_table
from evenlane.spark.master import is_local
from evenlane.spark.out import place
from evenlane.spark.out.attention import KnownTopics
from evenlane.spark.out.document import DocumentInput, ReportProperties, document, plain
from evenlane.spark.out.page import page
from evenlane.spark.out.quotas import apply_form, read_topics
from evenlane.spark.reports.node_records import count_records
from evenlane.spark.reports.noisy import noisy
from evenlane.spark.reports.quality import quality
from evenlane.spark.reports.reduction import ReducedRows
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.reports.tenants import recommended, sum_uncounted, tenants
from evenlane.spark.reports.timeline import find_timeline
from evenlane.spark.schemas import DEAD, METER
from evenlane.spark.session import moderate_input, session, small_input
from evenlane.spark.source import register
from evenlane.spark.source.columns import arrow_schema
from evenlane.spark.source.options import parse
from evenlane.spark.source.ranges import present

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from evenlane.spark.jobs.ingest import Records

_FILES = ("report.html", "report.json", "tenants.parquet", "quotas.json")


class SessionFactory(Protocol):
    """Starts a session; `small` says whether its input is."""

    def __call__(self, *, small: bool) -> AbstractContextManager[SparkSession]: ...


class ReportFiles(NamedTuple):
    """Names of the files in the folder, and the document of report.json."""

    files: list[str]
    document: dict[str, Any]


def check(wanted: ReportRequest) -> None:
    """Raise ConfigError for errors that are found without a server."""
    if wanted.window not in SPANS:
        raise ConfigError(f"--window: there is no window {wanted.window!r}: there are {', '.join(SPANS)}")
    wrong = [name for name in wanted.formats if name not in FORMATS]
    if wrong or not wanted.formats:
        raise ConfigError(f"--format: there is no format {(wrong or [''])[0]!r}: there are {', '.join(FORMATS)}")
    since, until = range_of(wanted, datetime.now(UTC))
    since = wanted.since or since
    if since >= until:
        raise ConfigError(f"--since ({plain(since)}) must be before --until ({plain(until)})")
    place.check(wanted.out)


def ask(wanted: ReportRequest) -> None:
    """Raise EvenlaneError if there is nothing to read, before Spark is started."""
    if wanted.source is not None:
        options = parse({**wanted.source, "what": "meter"})
        with StreamReader(options.settings) as server:
            present(server, options)


def make(spark: SparkSession, wanted: ReportRequest, announce: Callable[[str, float], None]) -> ReportFiles:
    """Make a report in a running session. The previous report stays in the folder until the new one is complete.
    `announce` is called at each step with its name and the share done. Raises EvenlaneError.
    """
    period = period_of(wanted)
    with place.stage(wanted.out, _FILES) as staging:
        return _make(spark, wanted, period, staging, announce, None)


def write(
    opened: SessionFactory,
    wanted: ReportRequest,
    announce: Callable[[str, float], None],
) -> ReportFiles:
    """Make a report in a session of its own, which `opened` starts. The session ends
    before the scratch folder is cleaned up, since its interrupted tasks would still write there.
    """
    period = period_of(wanted)
    given = options_of_meter(wanted, period)
    count = None if wanted.archive else count_messages(given)
    small = count is not None and count <= FEW_RECORDS
    announce("starting Spark" if count is None else f"starting Spark for {format_count(count, 'record')}", 0.0)
    with place.stage(wanted.out, _FILES) as staging, ThreadPoolExecutor(1) as pool:
        early = pool.submit(read_few, given, METER) if small else None  # while Spark starts
        with opened(small=small) as spark:
            return _make(spark, wanted, period, staging, announce, early)


def _make(
    spark: SparkSession,
    wanted: ReportRequest,
    period: Period,
    staging: place.Staging,
    announce: Callable[[str, float], None],
    early: Future[pa.Table | None] | None,
) -> ReportFiles:
    with explained(), contextlib.ExitStack() as stack:
        if wanted.archive and wanted.source is not None:
            announce("storing new records in the archive", 0.1)
            with contextlib.suppress(place.Busy):  # records that aren't archived yet are read from the stream
                archive.run(spark, wanted.source, wanted.archive)
        announce("reading records", 0.2)
        records = _records(spark, wanted, period, staging.scratch, early)
        if records.few:
            stack.enter_context(small_input(spark))
        elif isinstance(records.rows, ReducedRows):
            stack.enter_context(moderate_input(spark))
        announce(f"adding up {_sizes(records)}", 0.4)
        span = SPANS[wanted.window]
        timeline = find_timeline(records.rows)
        announce(f"computing windows from {_sizes(records)}", 0.5)
        made = tenants(records.rows, timeline, _dead(spark, wanted, period), span, wanted.targets, period.since)
        folder = staging.new if "parquet" in wanted.formats else staging.scratch
        found = store_table(made, folder / "tenants.parquet", few=records.few)
        announce("computing data quality and recommendations", 0.8)
        counted, end = count_records(records.rows, span.window_s), None if wanted.until else period.now
        rated = quality(counted, timeline, sum_uncounted(found), span, period.since, end)
        about = ReportProperties(
            wanted.env, period.now, wanted.window, timedelta(seconds=span.window_s), wanted.targets,
            KnownTopics(wanted.topics, wanted.paused_by, wanted.deleted), wanted.links, wanted.subscription,
        )  # fmt: skip
        content = document(DocumentInput(found, noisy, rated), about)
        content["quotas"] = _quotas(found, content["to"])
        announce(f"writing to {wanted.out}", 0.9)
        return ReportFiles(_write(staging.new, wanted, content), content)


def _quotas(found: pl.LazyFrame, until: str | None) -> list[dict[str, Any]]:
    """Return recommended quotas from the reported windows only, so that they match the page."""
    if until is None:
        return []
    seen = found.filter(pl.col("window_end") <= datetime.fromisoformat(until))
    return [plain(each) for each in recommended(seen).collect().to_dicts()]


def _records(
    spark: SparkSession,
    wanted: ReportRequest,
    period: Period,
    scratch: Path,
    early: Future[pa.Table | None] | None,
) -> Records:
    """Return the records: `early` if they are being read already and aren't too many."""
    span = SPANS[wanted.window]
    given = options_of_meter(wanted, period)
    few = early.result() if early is not None else read_few(given, METER)
    if few is not None:
        return reduce_few(few, span)
    cache = wanted.cache if is_local(spark.sparkContext.master) else None  # executors elsewhere have other disks
    return ingest(spark, given, scratch, span, cache=cache)


def _dead(spark: SparkSession, wanted: ReportRequest, period: Period) -> DataFrame:
    """Read dead letters. Without a source there are none."""
    if wanted.source is None:
        return spark.createDataFrame(arrow_schema(DEAD).empty_table(), DEAD)
    options = options_of_dead(wanted.source, period)
    few = read_few(options, DEAD)
    if few is not None:
        return spark.createDataFrame(few, DEAD)
    register(spark)
    return spark.read.format("evenlane").options(**options).load()


def _sizes(records: Records) -> str:
    return f"{format_count(records.tally.records, 'record')} with {format_count(records.tally.rows, 'row')}"


def _write(folder: Path, wanted: ReportRequest, content: Mapping[str, Any]) -> list[str]:
    if "json" in wanted.formats:
        _json(folder / "report.json", content)
        if wanted.topics is not None and wanted.subscription is None:  # a quota is for all subscriptions
            _json(folder / "quotas.json", apply_form(content["quotas"], wanted.topics))
    if "html" in wanted.formats:
        (folder / "report.html").write_text(page(content), encoding="utf-8")
    return sorted(each.name for each in folder.iterdir())


def _json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> None:
    command_line = Arguments(__doc__)
    command_line.archive()
    add = command_line.parser.add_argument
    add("--out", metavar="DIR", type=Path, required=True, help="folder for the report")
    add("--window", default="1h", metavar="W", help=f"{', '.join(SPANS)}; 1h if left out")
    add("--format", default=",".join(FORMATS), metavar="F[,F]", help=f"{', '.join(FORMATS)}; all if left out")
    add(
        "--since", metavar="TIME", type=when, help="RFC 3339, or how long ago such as 6h; some windows back if left out"
    )
    add("--until", metavar="TIME", type=when, help="the same; now if left out")
    add("--topics", metavar="FILE", type=Path, help="the present topics in JSON, as `evenlane topics apply` takes them")
    add("--archive-only", action="store_true", help="don't ask NATS: read what the archive has")
    add("--no-cache", action="store_true", help="read all records from NATS, not from the record cache, and cache none")
    given, source = command_line.parse(arguments)
    if given.archive_only and not given.archive:
        raise ConfigError("--archive-only: name the folder with --archive")
    settings = connect(source)
    source["nats"] = ",".join(settings.nats_servers)  # with an archive, the stream is read only if `nats` is an option
    wanted = ReportRequest(
        given.out, settings.env, None if given.archive_only else source, given.window,
        [each.strip() for each in given.format.split(",")], given.archive, given.since, given.until,
        topics=None if given.topics is None else read_topics(given.topics),
        cache=None if given.no_cache else default_root(), subscription=settings.subscription,
    )  # fmt: skip
    check(wanted)
    ask(wanted)
    printed = functools.partial(print, file=sys.stderr, flush=True)
    written = write(functools.partial(session, "evenlane report"), wanted, lambda what, _share: printed(what))
    print("\n".join(str(given.out / name) for name in written.files))  # noqa: T201


if __name__ == "__main__":
    run(main)
