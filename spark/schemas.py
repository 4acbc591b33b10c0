"""The rows that `spark.read.format("evenlane")` gives, by what is read (docs/tutorials/reports.md)."""

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
"""Cumulative for a queue and epoch, in messages or attempts."""
WAITED = tuple(f"waited_{reason}_s" for reason in REASONS)
"""Cumulative for a queue and epoch: seconds that messages waited for this, times their number."""
WAITS = ArrayType(struct(bucket=_int, count=_long))
"""Of waits that ended, cumulative for a queue and epoch; of buckets (engine/core/stats/wait_histogram.py) that changed.
"""

METER = struct(
    # where it stands: the message's sequence in METER_<env>, and when it came there; what is wrong with it, if it
    # can't be read: then all below but `node` and `version` is null
    sequence=_long, stored=_time, version=_int, problem=_string,
    # the record: when it was made by the node's clock, for which time it speaks; `number` counts the records of a
    # `run` from 1, `after` is the last one before it that the store had acknowledged. A record that
    # tells of nothing is one row in which all that follows is null
    node=_string, run=_long, number=_long, after=_long, at=_time, span_s=_double, slots=_int,
    # the epoch: since when its counters count, whether the node handed the partition over. Where a record says whose
    # the partition is, but names no queue of it, all that follows is null
    partition=_int, epoch=_long, since=_time, closed=BooleanType(),
    # the topic, as far as the node knows it; `may_use` is the node's part of `qps`, `fairness` share got over share due
    project=_string, qps=_double, may_use=_double, weight=_double, reserve=_double, concurrency=_double,
    fairness=_double,
    # the queue
    group=_int, priority=_string,
    backlog=_long, oldest_s=_double, in_flight=_long, longest_s=_double,
    **dict.fromkeys(COUNTERS, _long), dwelt_s=_double, ran_s=_double,
    **dict.fromkeys(WAITED, _double),
    waits=WAITS,
)  # fmt: skip
"""One row for each queue that a record tells of; see engine/core/wire/meter_record.py for what each column means."""

LANES = struct(
    stream=_string, kind=_string, partition=_int, sequence=_long, stored=_time, subject=_string,
    project=_string, group=_int, priority=_string,
    id=_string, key=_string, attempt=_int, put_at=_time, due_at=_time, expires_at=_time,
    size=_long, body=BinaryType(),
)  # fmt: skip
"""One row for each message that waits or is being handled: `kind` is `lanes` or `later` (delayed, or to be retried).
`project`, `group` and `priority` are null where the subject is no queue's; `size` is the body's in bytes, and `body`
null unless the option `payload` is true. `attempt` is the next one's number, from 1.
"""

DEAD = struct(
    sequence=_long, died_at=_time, subject=_string, project=_string, group=_int, priority=_string, partition=_int,
    id=_string, key=_string, attempts=_int, reason=_string, error=_string, put_at=_time, size=_long, body=BinaryType(),
)  # fmt: skip
"""One row for each dead letter: `reason` is why no further attempt was made, `error` what the last one raised;
`body` as above.
"""
