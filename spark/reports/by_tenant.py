"""Distributes the rows of grains by tenant, and computes each tenant's figures where its rows are.

Spark joins, divides and stores rows; Polars computes on all rows of some tenants at once. It takes a fraction of the
time that Spark takes for the same steps, most of which goes into compiling their code (decision 0043).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports.epochs import epochs, extent, runs
from evenlane.spark.reports.expressions import from_arrow, physical, to_arrow
from evenlane.spark.reports.figures import figures
from evenlane.spark.reports.keys import SPELL
from evenlane.spark.reports.schemas import FIGURES, WAIT_COUNTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame

    from evenlane.spark.reports.grains import Grains
    from evenlane.spark.reports.spans import Span
    from evenlane.spark.reports.targets import Targets

    Keep = Callable[[DataFrame, str], DataFrame]


_RUN = ("node", "run")


class LocalRows(NamedTuple):
    """Tables of LEVELS and WAIT_LISTS in this process."""

    levels: pa.Table
    waits: pa.Table


def tenant_figures(
    grains: Grains, span: Span, targets: Targets, keep: Keep, local: LocalRows | None = None
) -> DataFrame:
    """Compute FIGURES from `grains` of the span's grain length; each may occur several times, as tasks found it, and
    its waits may be rows of WAIT_LEVELS or WAIT_LISTS. `keep` gets each frame that is used more than once. `local` has
    the same grains, if they are few: this process then computes, as it takes longer to start others and to pass them
    rows.
    """
    ends, spells = extent(grains.records), epochs(grains.levels)
    if local is not None:
        found = figures(*_join_here(local, ends, spells, runs(grains.records)), span, targets)
        return ends.sparkSession.createDataFrame(to_arrow(found, FIGURES), FIGURES)
    ends, spells = keep(ends, "extent"), keep(spells, "epochs")
    levels, waits = _levels(grains, ends, spells), _waits(grains)
    rows = _pack(levels, "level").unionByName(_pack(waits, "wait"), allowMissingColumns=True)
    compute = partial(_compute, span=span, targets=targets)
    return rows.repartition(_count_partitions(rows), "project").mapInArrow(compute, FIGURES)


def _count_partitions(rows: DataFrame) -> int:
    """Return a fixed number: Spark combines partitions by their compressed size, of which Polars needs a multiple."""
    return int(rows.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)


def _join_here(
    local: LocalRows, ends: DataFrame, spells: DataFrame, of_runs: DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Join as `_levels` and `_waits` do, in this process."""
    ends_here, spells_here, runs_here = (from_arrow(each.toArrow()) for each in (ends, spells, of_runs))
    levels = (
        from_arrow(local.levels)
        .filter(pl.col("project").is_not_null())
        .join(spells_here.drop("began", "named"), on=SPELL)
        .join(runs_here, on=_RUN, how="left")
        .join(ends_here, how="cross")
    )
    return levels, from_arrow(local.waits).join(runs_here, on=_RUN, how="left")


def _levels(grains: Grains, ends: DataFrame, spells: DataFrame) -> DataFrame:
    """Return the rows of queues with what is known of their epoch, run and all records."""
    return (
        grains.levels.where(F.col("project").isNotNull())
        .join(spells.drop("began", "named"), [*SPELL])
        .join(F.broadcast(runs(grains.records)), [*_RUN], "left")
        .crossJoin(F.broadcast(ends))
    )


def _waits(grains: Grains) -> DataFrame:
    """Return the rows of waits with what is known of their run."""
    of_runs = runs(grains.records).drop("run_to", "run_span_s")
    waits = grains.waits
    if "waits" not in waits.columns:
        lists = F.array(F.struct(*WAIT_COUNTS.names))
        waits = waits.withColumn("waits", lists).drop(*WAIT_COUNTS.names)
    return waits.join(F.broadcast(of_runs), [*_RUN], "left")


def _pack(frame: DataFrame, name: str) -> DataFrame:
    return frame.select("project", F.struct(*(f"`{each}`" for each in frame.columns)).alias(name))


def _compute(batches: Iterable[pa.RecordBatch], span: Span, targets: Targets) -> Iterator[pa.RecordBatch]:
    """Compute all rows of some tenants, each of which has either a `level` or a `wait`."""
    if held := list(batches):
        rows = from_arrow(pa.Table.from_batches(held))
        levels, waits = (_unpack(rows, name) for name in ("level", "wait"))
        del held, rows  # the memory of all tenants
        yield from to_arrow(figures(levels, waits, span, targets), FIGURES).to_batches()


def _unpack(rows: pl.DataFrame, name: str) -> pl.DataFrame:
    return physical(rows.filter(pl.col(name).is_not_null()).select(name).unnest(name))
