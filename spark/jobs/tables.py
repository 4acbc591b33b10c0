"""Keeps the tables of reports current, as a streaming job that continues from its checkpoint after any failure.

    python -m evenlane.spark.jobs.tables --tables DIR --every "1 minute"    continue until SIGTERM
    python -m evenlane.spark.jobs.tables --tables DIR                       process new records, then end

`DIR/current.json` names the folders that count. It is replaced in one step when a batch's folders are complete. A
reader therefore sees all of a batch or nothing, and a batch that is repeated after a kill changes nothing (`read`
below). The previous version is kept until the next batch, for readers that still use it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the usual name

from evenlane.engine.errors import ConfigError, EvenlaneError
from evenlane.spark.jobs import streams
from evenlane.spark.jobs.arguments import Arguments, run
from evenlane.spark.jobs.folders import Folder
from evenlane.spark.reports.grains import Grains, grains, merge_grains, union_grains
from evenlane.spark.reports.node_records import count_records
from evenlane.spark.reports.noisy import NEEDED, noisy
from evenlane.spark.reports.quality import quality
from evenlane.spark.reports.schemas import LEAD_S, LEVELS, NOISY, QUALITY, RECORDS, WAIT_LEVELS
from evenlane.spark.reports.spans import FINEST_S, SPANS
from evenlane.spark.reports.tenants import sum_uncounted, tenants
from evenlane.spark.reports.timeline import find_timeline
from evenlane.spark.reports.workers import collect, map_groups
from evenlane.spark.schemas import DEAD
from evenlane.spark.session import session

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

    from evenlane.spark.reports.spans import Span

TABLES = ("tenants", "noisy", "quality")
KEEP_DAYS = 2
"""The watermark, in days: a record counts in the windows of its event time, however late it arrives, unless that time
is more than this before the newest record's. Earlier windows aren't in the tables.
"""
_CURRENT = "current.json"
_SCRATCH = "_scratch"
_MOST_PARTS = 8  # batches whose grains are kept separately; more are merged


class ReportTables:
    """The tables in a folder. `source` locates dead letters; None: none are read."""

    def __init__(self, spark: SparkSession, path: str, source: Mapping[str, str] | None) -> None:
        self.folder = Folder(spark, path)
        self._spark, self._source = spark, source
        self._keep = timedelta(days=KEEP_DAYS)

    def current(self) -> dict[str, Any]:
        """Return the current version: `batch` is its last batch; `grains` are the folders it was computed from."""
        text = self.folder.read(_CURRENT)
        return {"batch": None, "grains": []} if text is None else json.loads(text)

    def add_batch(self, meter: DataFrame, batch: str) -> None:
        """Add one batch of METER, unless it is already in the tables."""
        previous = self.current()
        if previous["batch"] == batch:
            return
        before = [self._grains(name).records for name in previous["grains"]]
        self.folder.keep_grains(grains(meter, FINEST_S, before), f"grains/{batch}")
        parts = [*previous["grains"], f"grains/{batch}"]
        if len(parts) > _MOST_PARTS:
            known = union_grains(*map(self._grains, parts))
            enough = _filter_since(known, self._first(known) - timedelta(seconds=LEAD_S))
            self.folder.keep_grains(enough, f"grains/{batch}-whole")
            parts = [f"grains/{batch}-whole"]
        self._write_tables(union_grains(*map(self._grains, parts)), batch)
        self.folder.write(_CURRENT, json.dumps({"batch": batch, "grains": parts}))
        self._tidy(previous, parts, batch)

    def _grains(self, name: str) -> Grains:
        """Return kept grains; columns that an older release didn't write are null."""
        tables = zip(Grains._fields, (LEVELS, WAIT_LEVELS, RECORDS), strict=True)
        return Grains(
            *(self._spark.read.schema(schema).parquet(self.folder.path_of(f"{name}/{part}")) for part, schema in tables)
        )

    def _first(self, known: Grains) -> datetime:
        """Return the first time that is kept, relative to the newest record."""
        [[newest]] = known.records.agg(F.unix_seconds(F.max("event"))).collect()
        return datetime.fromtimestamp(newest or 0, UTC) - self._keep

    def _write_tables(self, known: Grains, batch: str) -> None:
        kept = self.folder.keep_grains(known, _SCRATCH)
        since = self._first(kept)
        for window, span in SPANS.items():
            scratch = Folder(self._spark, self.folder.path_of(f"{_SCRATCH}-{window}"))
            longer = span.grain_s > FINEST_S
            merged = scratch.keep_grains(merge_grains(kept, span.grain_s), "grains") if longer else kept
            self._write_window(merged, span, since, f"{batch}/{window}")
        for name in self.folder.names(f"{_SCRATCH}*"):
            self.folder.delete(name)

    def _write_window(self, known: Grains, span: Span, since: datetime, name: str) -> None:
        timeline = find_timeline(known)
        found = tenants(known, timeline, self._dead(since), span, since=since)
        found = self.folder.keep(found, f"tenants/{name}")
        self.folder.keep(_noisy(found), f"noisy/{name}")
        uncounted = collect(found.groupBy("window_start").agg(F.sum("uncounted").alias("uncounted")))
        records = count_records(known, span.window_s)
        rated = quality(records, timeline, sum_uncounted(uncounted.lazy()), span, since)
        self.folder.keep(self._spark.createDataFrame(rated, QUALITY), f"quality/{name}")

    def _dead(self, since: datetime) -> DataFrame:
        if self._source is None:
            return self._spark.createDataFrame([], DEAD)
        options = {
            **self._source,
            "what": "dead",
            "missing": "empty",
            "since": since.isoformat().replace("+00:00", "Z"),
        }
        return self._spark.read.format("evenlane").options(**options).load()

    def _tidy(self, previous: Mapping[str, Any], parts: Sequence[str], batch: str) -> None:
        counting = {
            *parts,
            *previous["grains"],
            *(f"{table}/{each}" for table in TABLES for each in (batch, previous["batch"])),
        }
        for pattern in ("grains/*", *(f"{table}/*" for table in TABLES)):
            for name in self.folder.names(pattern):
                if name not in counting:
                    self.folder.delete(name)


def _noisy(tenants: DataFrame) -> DataFrame:
    """Compute NOISY of each window in one of Spark's Python workers."""
    return map_groups(tenants.select(*NEEDED), "window_start", _noisy_of_windows, NOISY)


def _noisy_of_windows(tenants: pl.DataFrame) -> pl.DataFrame:
    return noisy(tenants.lazy()).collect()


def _filter_since(known: Grains, first: datetime) -> Grains:
    return Grains(*(frame.where(F.col("grain") >= F.lit(first)) for frame in known))


def read(spark: SparkSession, path: str, table: str, window: str) -> DataFrame:
    """Read one of TABLES, as of the last complete batch. `window` is 5m, 1h or 1d. Raises EvenlaneError."""
    if table not in TABLES:
        raise ConfigError(f"there is no table {table!r}: there are {', '.join(TABLES)}")
    if window not in SPANS:
        raise ConfigError(f"there is no window {window!r}: there are {', '.join(SPANS)}")
    tables = ReportTables(spark, path, None)
    batch = tables.current()["batch"]
    if batch is None:
        raise EvenlaneError(f"{path} has no tables yet: evenlane.spark.jobs.tables hasn't finished a batch there")
    return spark.read.parquet(tables.folder.path_of(f"{table}/{batch}/{window}"))


def keep_current(
    spark: SparkSession,
    source: Mapping[str, str],
    path: str,
    every: str | None = None,
    announce: Callable[[str], None] = streams.silent,
) -> None:
    tables = ReportTables(spark, path, source)
    streams.run(spark, source, tables.folder, tables.add_batch, every=every, announce=announce)


def main(arguments: Sequence[str]) -> None:
    command_line = Arguments(__doc__)
    command_line.parser.add_argument("--tables", metavar="DIR", required=True, help="folder or URL for the tables")
    command_line.every()
    given, source = command_line.parse(arguments)
    with session("evenlane tables") as spark:
        keep_current(spark, source, given.tables, given.every, streams.print_line)


if __name__ == "__main__":
    run(main)
