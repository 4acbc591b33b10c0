"""Reads the records of a report once, and reduces them to grains. Few are read by the driver and kept in memory, while
Spark still starts. Many are read by tasks, each of which writes what it found as Parquet.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenlane.spark.jobs.record_cache import align, open_cache
from evenlane.spark.out import place
from evenlane.spark.reports.grains import SKEW_S, Grains
from evenlane.spark.reports.reduction import REDUCED, ReducedRows, reduce_rows
from evenlane.spark.source.columns import arrow_schema
from evenlane.spark.source.datasource import EvenlaneReader
from evenlane.spark.source.options import parse
from evenlane.spark.source.reading import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from evenlane.spark.reports.reduction import GrainRows
    from evenlane.spark.reports.spans import Span
    from evenlane.spark.source.options import Options
    from evenlane.spark.source.plan import Task

FEW_RECORDS = 5_000
FEW_ROWS = 100_000
"""The driver itself reads inputs of at most this many rows (about 50 MB), and Spark is set up for small inputs."""
LOCAL_ROWS = 200_000
"""The driver itself computes figures from at most this many rows of LEVELS and WAIT_LISTS. It takes some 400 MB."""
LOCAL_RECORDS = 1_000_000
"""The driver itself computes figures from at most this many rows of RECORDS. It takes some 600 MB."""
_GROUPED_ROWS = 131_072  # reduced at a time: some 150 MB
_MICROS = 1_000_000
_WORDS = ["node", "project", "priority", "problem"]


@dataclass
class RecordTally:
    """What was read. `quickest_us` is the shortest time from a record's creation to its storage, by run."""

    rows: int = 0
    records: int = 0
    quickest_us: dict[tuple[str, int], int] = field(default_factory=dict)

    def add(self, other: RecordTally) -> None:
        self.rows += other.rows
        self.records += other.records
        for run, quickest in other.quickest_us.items():
            self.quickest_us[run] = min(quickest, self.quickest_us.get(run, quickest))

    @property
    def behind(self) -> list[tuple[str, int]]:
        """The runs whose clock is slow: see SKEW_S."""
        return sorted(run for run, quickest in self.quickest_us.items() if quickest > SKEW_S * _MICROS)


class Records(NamedTuple):
    """The records, reduced to grains. Unless they are `few`, each task has made its own."""

    rows: GrainRows
    tally: RecordTally
    few: bool


def count_messages(given: Mapping[str, str]) -> int | None:
    """Return the number of messages to read, at the most; None if files of an archive are read, too. Needs no Spark.
    Raises EvenlaneError.
    """
    _, tasks = _plan(given)
    return None if any(task.files for task in tasks) else _count(tasks)


def read_few(given: Mapping[str, str], schema: StructType) -> pa.Table | None:
    """Read rows in this process; None if they are too many. Needs no Spark. Raises EvenlaneError."""
    options, tasks = _plan(given)
    if _count(tasks) > FEW_RECORDS:
        return None
    found: list[pa.RecordBatch] = []
    for batch in (batch for task in tasks for batch in rows(options, task)):
        found.append(batch)
        if sum(map(len, found)) > FEW_ROWS:
            return None
    return pa.Table.from_batches(found, arrow_schema(schema))


def reduce_few(table: pa.Table, span: Span) -> Records:
    counter = _Counter()
    for batch in table.to_batches():
        counter.add(batch)
    tally = counter.tally()
    return Records(reduce_rows(table, span, tally.behind), tally, few=True)


def ingest(
    spark: SparkSession,
    given: Mapping[str, str],
    scratch: Path,
    span: Span,
    local_rows: int = LOCAL_ROWS,
    cache: Path | None = None,
) -> Records:
    """Read the records by Spark's tasks into a folder in `scratch`. At most `local_rows` are then read by this process.
    `cache` is the folder of the record cache; None: it isn't used. Raises EvenlaneError and Spark's errors.
    """
    options, tasks = _plan(given)
    with contextlib.ExitStack() as stack:
        read = partial(rows, options)
        if cache is not None and options.archive is None:
            opened = stack.enter_context(open_cache(cache, options))
            if opened is not None:
                read, tasks = partial(opened.rows, options), align(tasks)
        tally = _run_tasks(spark, read, tasks, scratch, span)
    return Records(_read(spark, scratch, local_rows), tally, few=False)


def _run_tasks(
    spark: SparkSession, read: Callable[[Task], Iterator[pa.RecordBatch]], tasks: list[Task], scratch: Path, span: Span
) -> RecordTally:
    """Whether a clock is slow is only known after all records were read: if one is, they are read again."""
    numbered = list(enumerate(tasks))
    tally, behind = RecordTally(), None
    while behind != tally.behind:
        behind, tally = tally.behind, RecordTally()
        for part in Grains._fields:
            (scratch / part).mkdir(parents=True, exist_ok=True)
        work = partial(_store, read, scratch, span, behind)
        for each in spark.sparkContext.parallelize(numbered, len(numbered)).map(work).collect():
            tally.add(each)
    return tally


def _read(spark: SparkSession, scratch: Path, local_rows: int) -> GrainRows:
    """Return what the tasks wrote: as tables of this process, unless they are too large for it."""
    folders = ReducedRows._make(scratch / part for part in ReducedRows._fields)
    levels, waits, records = map(_count_rows, folders)
    if levels + waits <= local_rows and records <= LOCAL_RECORDS:
        return ReducedRows(*map(pq.read_table, folders))
    return Grains(
        *(spark.read.schema(schema).parquet(place.url(folder)) for folder, schema in zip(folders, REDUCED, strict=True))
    )


def _count_rows(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in folder.glob("part-*"))


def _plan(given: Mapping[str, str]) -> tuple[Options, list[Task]]:
    options = parse(given)
    return options, EvenlaneReader(options).tasks()


def _count(tasks: Iterable[Task]) -> int:
    return sum(each.last - each.first + 1 for task in tasks for each in task.ranges)


def _store(
    read: Callable[[Task], Iterator[pa.RecordBatch]],
    scratch: Path,
    span: Span,
    behind: list[tuple[str, int]],
    numbered: tuple[int, Task],
) -> RecordTally:
    """Write what a task found to files, which replace those of an earlier attempt."""
    number, task = numbered
    counter = _Counter()
    targets = [scratch / part / f"part-{number:05}.parquet" for part in Grains._fields]
    new = [target.with_name(f"_{target.name}-{id(counter)}") for target in targets]
    with contextlib.ExitStack() as stack:
        writers = [
            stack.enter_context(
                pq.ParquetWriter(file, arrow_schema(schema), compression="snappy", use_dictionary=_WORDS)
            )
            for file, schema in zip(new, REDUCED, strict=True)
        ]
        for table in _grouped(read(task)):
            for batch in table.to_batches():
                counter.add(batch)
            for writer, part in zip(writers, reduce_rows(table, span, behind), strict=True):
                writer.write_table(part)
    for file, target in zip(new, targets, strict=True):
        file.replace(target)
    return counter.tally()


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine batches: the more rows are reduced together, the fewer are left."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += len(batch)
        if count >= _GROUPED_ROWS:
            yield pa.Table.from_batches(held)
            held, count = [], 0
    if held:
        yield pa.Table.from_batches(held)


class _Counter:
    """Counts rows, records and delays."""

    def __init__(self) -> None:
        self.rows = 0
        self._sequences: list[pa.Array] = []
        self._quickest: dict[tuple[str, int], int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        self.rows += len(batch)
        self._sequences.append(pc.unique(batch.column("sequence")))
        delay = pc.subtract(pc.cast(batch.column("stored"), pa.int64()), pc.cast(batch.column("at"), pa.int64()))
        runs = pa.table({"node": batch.column("node"), "run": batch.column("run"), "delay": delay})
        for row in runs.group_by(["node", "run"]).aggregate([("delay", "min")]).to_pylist():
            run, quickest = (row["node"], row["run"]), row["delay_min"]
            if quickest is not None and run[1] is not None:
                self._quickest[run] = min(quickest, self._quickest.get(run, quickest))

    def tally(self) -> RecordTally:
        records = len(pc.unique(pa.chunked_array(self._sequences, pa.int64())))
        return RecordTally(self.rows, records, self._quickest)
