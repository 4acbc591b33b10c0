"""Reads the records of a report once. Few are read by the driver and kept in memory, while Spark still starts. Many are
read by tasks that write them as Parquet, from which each later step reads only its own columns.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from evenlane.spark.out import place
from evenlane.spark.reports.grains import SKEW_S
from evenlane.spark.schemas import METER
from evenlane.spark.source.columns import arrow_schema
from evenlane.spark.source.datasource import EvenlaneReader
from evenlane.spark.source.options import parse
from evenlane.spark.source.reading import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from evenlane.spark.source.options import Options
    from evenlane.spark.source.plan import Task

FEW_RECORDS = 5_000
FEW_ROWS = 100_000
"""The driver itself reads inputs of at most this many rows (about 50 MB), and Spark is set up for small inputs."""
MODERATE_ROWS = 2_000_000
"""Inputs of at most this many rows need no planning again after each step."""
_FILE_ROWS = 65_536  # rows in a row group
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
    """Rows of METER, and what they are."""

    meter: DataFrame
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


def keep_few(spark: SparkSession, table: pa.Table) -> Records:
    counter = _Counter()
    for batch in table.to_batches():
        counter.add(batch)
    return Records(spark.createDataFrame(table, METER), counter.tally(), few=True)


def ingest(spark: SparkSession, given: Mapping[str, str], scratch: Path) -> Records:
    """Read the records by Spark's tasks into a folder in `scratch`. Raises EvenlaneError and Spark's errors."""
    options, tasks = _plan(given)
    folder = scratch / "meter"
    folder.mkdir()
    work = partial(_store, options, folder)
    tally = RecordTally()
    numbered = list(enumerate(tasks))
    for each in spark.sparkContext.parallelize(numbered, len(numbered)).map(work).collect():
        tally.add(each)
    return Records(spark.read.schema(METER).parquet(place.url(folder)), tally, few=False)


def _plan(given: Mapping[str, str]) -> tuple[Options, list[Task]]:
    options = parse(given)
    return options, EvenlaneReader(options).tasks()


def _count(tasks: Iterable[Task]) -> int:
    return sum(each.last - each.first + 1 for task in tasks for each in task.ranges)


def _store(options: Options, folder: Path, numbered: tuple[int, Task]) -> RecordTally:
    """Write a task's rows to a file, which replaces that of an earlier attempt."""
    number, task = numbered
    target = folder / f"part-{number:05}.parquet"
    counter = _Counter()
    new = folder / f"_{target.name}-{id(counter)}"
    with contextlib.ExitStack() as stack:
        writer = stack.enter_context(
            pq.ParquetWriter(new, arrow_schema(METER), compression="snappy", use_dictionary=_WORDS)
        )
        for table in _grouped(rows(options, task)):
            for batch in table.to_batches():
                counter.add(batch)
            writer.write_table(table, row_group_size=_FILE_ROWS)
    new.replace(target)
    return counter.tally()


def _grouped(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Combine small batches, as those of many small files."""
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += len(batch)
        if count >= _FILE_ROWS:
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
