"""Schemas of the rows of `spark.read.format("evenlane")`, by kind (docs/reference/data-source.md)."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from evenlane.engine.core.wire.reason_codes import REASONS


def struct(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


_string, _int, _long, _double, _time = StringType(), IntegerType(), LongType(), DoubleType(), TimestampType()

COUNTERS = ("arrived", "handled", "retried", "dead", "expired", "dropped", "attempts")
"""Cumulative per queue and epoch, in messages or attempts."""
WAITED = tuple(f"waited_{reason}_s" for reason in REASONS)
"""Cumulative per queue and epoch: seconds that messages waited for this reason, times their number."""
WAITS = ArrayType(struct(bucket=_int, count=_long))
"""Counts of finished waits, cumulative per queue and epoch; only buckets that changed
(engine/core/stats/wait_histogram.py).
"""

METER = struct(
    # location: the message's sequence in its stream, and its arrival; its problem, if it can't be decoded: all columns
    # below except `subscription` and `node` are then null
    sequence=_long, stored=_time, version=_int, problem=_string,
    # that of the node; empty: the one without a name
    subscription=_string,
    # the record: when it was made, by the node's clock, and the time it covers; `number` counts the records of a `run`
    # from 1, `after` is the last earlier one that the store had acknowledged. A record without reports is one row in
    # which all further columns are null
    node=_string, run=_long, number=_long, after=_long, at=_time, span_s=_double, slots=_int,
    # the epoch: since when its counters count, and whether the node handed the partition off. If a record reports a
    # partition's owner, but no queue of it, all further columns are null
    partition=_int, epoch=_long, since=_time, closed=BooleanType(),
    # the topic, as known to the node; `may_use` is the node's part of `qps`, `fairness` is share got over share due
    project=_string, qps=_double, may_use=_double, weight=_double, reserve=_double, concurrency=_double,
    fairness=_double,
    # the queue
    group=_int, priority=_string,
    backlog=_long, oldest_s=_double, in_flight=_long, longest_s=_double,
    **dict.fromkeys(COUNTERS, _long), dwelt_s=_double, ran_s=_double,
    **dict.fromkeys(WAITED, _double),
    waits=WAITS,
)  # fmt: skip
"""One row per queue reported in a record; see engine/core/records/meter_record.py for the meaning of each column."""

LANES = struct(
    stream=_string, kind=_string, partition=_int, sequence=_long, stored=_time, subject=_string,
    project=_string, group=_int, priority=_string,
    id=_string, key=_string, attempt=_int, put_at=_time, due_at=_time, expires_at=_time,
    size=_long, body=BinaryType(),
)  # fmt: skip
"""One row per message that waits or is being handled. `kind` is `lanes` or `later` (delayed, or to be retried).
`project`, `group` and `priority` are null if no queue has the subject; `size` is the body's in bytes, and `body` is
null unless the option `payload` is true. `attempt` is the number of the next attempt, from 1.
"""

DEAD = struct(
    sequence=_long, died_at=_time, subject=_string, project=_string, group=_int, priority=_string, partition=_int,
    id=_string, key=_string, attempts=_int, reason=_string, error=_string, put_at=_time, size=_long, body=BinaryType(),
)  # fmt: skip
"""One row per dead letter. `reason` says why it had no further attempt, `error` what the last one raised."""
