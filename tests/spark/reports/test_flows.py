"""Growth of counters, computed by Polars alone."""

import polars as pl
import pyarrow as pa

from evenlane.spark.reports.expressions import MICROS, Extent, from_arrow
from evenlane.spark.reports.flows import flows
from evenlane.spark.reports.keys import number_queues
from evenlane.spark.reports.reduction import reduce_rows
from evenlane.spark.reports.spans import SPANS
from evenlane.spark.schemas import METER
from evenlane.spark.source.columns import arrow_schema
from tests.spark.reports.cases import metered
from tests.spark.reports.rows import START, after

SPAN = SPANS["5m"]
WAITED_S = (5.0, 6.0, 9.0)
"""As reported in each of three grains."""


def levels():
    """The rows of a queue, with what is known of its epoch and run."""
    rows = metered(
        "acme", 1, len(WAITED_S), at=lambda n: after(60 * n + 5), stored=lambda n: after(60 * n + 5),
        waited_no_handler_s=lambda n: WAITED_S[n],
    )  # fmt: skip
    table = pa.Table.from_pylist([dict(zip(METER.names, row, strict=True)) for row in rows], arrow_schema(METER))
    found = number_queues(from_arrow(reduce_rows(table, SPAN).levels)).sort("grain")
    known = {"handed_over": False, "complete": True, "run_number": 1, "run_span_s": 10.0}
    return found.with_columns(
        *(pl.lit(value).alias(name) for name, value in known.items()),
        *(pl.lit(None, pl.Int64).alias(name) for name in ("superseded", "run_at")),
        pl.col("last_at").max().alias("run_to"),
    )


def test_counter_that_an_older_release_lacks_does_not_start_again():
    """After an upgrade, rows of the older release, in which it is null, may lie between those of the new one."""
    start = int(START.timestamp()) * MICROS
    known = levels()
    assert len(WAITED_S) == len(known)
    place = pl.int_range(pl.len())
    lacking = known.with_columns(pl.when(place != 1).then("waited_no_handler_s").alias("waited_no_handler_s"))
    for each in (known, lacking):
        found = flows(each, Extent(start, start + 180 * MICROS), SPAN).filter(pl.col("priority") == "")
        assert WAITED_S[-1] == found["waited_no_handler_s"].sum()
