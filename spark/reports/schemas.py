"""The tables of reports. Times are UTC; durations seconds; rates messages a second; shares from 0 to 1.

Two stages, so that one code serves a batch and a streaming job:

1. `Grains`: LEVELS, WAIT_LEVELS and RECORDS, made from METER, small, and mergeable: rows may be appended in any order
   and more than once, `merged` gives the same (spark/reports/grains.py).
2. From them TENANTS, and from that NOISY and RECOMMENDED; QUALITY (spark/reports/tenants.py and its neighbours).

The messages that are read first should be some time (`LEAD_S`) older than the first window that is wanted: counters
are cumulative, and a queue that doesn't change is told only now and then.
"""

from __future__ import annotations

from pyspark.sql.types import ArrayType, BooleanType, DoubleType, IntegerType, LongType, StringType, TimestampType

from evenlane.spark.schemas import COUNTERS, WAITED, struct

_string, _int, _long, _double, _time = StringType(), IntegerType(), LongType(), DoubleType(), TimestampType()
_strings = ArrayType(_string)

LEAD_S = 1200
"""How much earlier than the first window that is wanted a report should begin to read, unless nodes' intervals are set
to more than 10 s: in this time each queue is told at least three times.
"""
TOPIC = ("qps", "may_use", "weight", "reserve", "concurrency", "fairness")
SPENT = ("dwelt_s", "ran_s")
CUMULATIVE = (*COUNTERS, *SPENT, *WAITED)
QUEUE = ("partition", "project", "group", "priority")

LEVELS = struct(
    # `grain` is when it begins, by event time
    grain=_time, node=_string, run=_long, partition=_int, epoch=_long, project=_string, group=_int, priority=_string,
    since=_time, closed=BooleanType(),
    # the first and last record of the grain that told of the queue, and when that last one was made (event time)
    first_number=_long, number=_long, last_at=_time,
    **dict.fromkeys(TOPIC, _double),
    # as last told, but `longest_s` is the longest in the grain
    backlog=_long, oldest_s=_double, in_flight=_long, longest_s=_double,
    # cumulative, as last told
    **dict.fromkeys(COUNTERS, _long), **dict.fromkeys((*SPENT, *WAITED), _double),
)  # fmt: skip
"""A row for each grain and (queue, epoch) that was told of in it. One without a project says whose a partition is."""

WAIT_LEVELS = struct(
    grain=_time, node=_string, run=_long, partition=_int, epoch=_long, project=_string, group=_int, priority=_string,
    since=_time, bucket=_int, first_number=_long, count=_long,
)  # fmt: skip
"""A row for each bucket of waits (engine/core/stats/wait_histogram.py) told of in a grain; `count` is cumulative."""

RECORDS = struct(
    # `event` is the event time: `at`, or `stored` where the node's clock is wrong; `rows` how many queues it told of
    grain=_time, stored=_time, sequence=_long, event=_time, version=_int, problem=_string,
    node=_string, run=_long, number=_long, after=_long, at=_time, span_s=_double, slots=_int,
)  # fmt: skip
"""A row for each message of the stream, whether it could be read or not."""

WAITS = {"wait_p50_s": _double, "wait_p95_s": _double, "wait_p99_s": _double, "wait_max_s": _double}
FLOWS = {
    **dict.fromkeys(("arrived", "first_puts", "handled", "retried", "dead", "expired", "dropped", "attempts"), _long),
    "arrival_rate": _double, "drain_rate": _double,
}  # fmt: skip
FORECAST = {
    # messages a second that the backlog grows by (less than 0: falls), and growing, shrinking or steady
    "trend": _double, "trend_word": _string,
    # until nothing waits, null unless `empty_word` is `empty` or `expected`; else it is `never` or `unknown`. The band
    # may have an end where `empty_s` is null: by chance all may go better
    "empty_s": _double, "empty_low_s": _double, "empty_high_s": _double, "empty_word": _string,
}  # fmt: skip

PRIORITY = struct(
    priority=_string, backlog=_long, in_flight=_long, oldest_s=_double, target_s=_double,
    **WAITS, **FLOWS, **FORECAST,
    # since when the oldest message is late, and by how much now; else when one will be, if that goes on: all null if
    # the target is kept
    late_since=_time, late_by_s=_double, miss_at=_time,
)  # fmt: skip

TENANTS = struct(
    # `covered_s` is how much of the window there is data for: rates are over that
    window_start=_time, window_end=_time, project=_string, covered_s=_double,
    # as it was at the window's end
    backlog=_long, in_flight=_long, oldest_s=_double,
    # of waits that ended in the window
    **WAITS,
    **FLOWS, uncounted=_long,
    **FORECAST,
    # whether the backlog will be gone within the target
    empty_in_time=BooleanType(),
    # the worst of the priorities
    late=BooleanType(), late_priority=_string, late_since=_time, late_by_s=_double,
    miss_priority=_string, miss_at=_time,
    # the quota; attempts over what it would have allowed, in the whole window and in the busiest grain
    qps=_double, weight=_double, quota_used=_double, quota_peak=_double,
    # of all tenants' messages in flight and handling time; and what it got over what it was due
    in_flight_mean=_double, share_in_flight=_double, share_handling=_double, ran_s=_double, got_over_due=_double,
    # what messages waited for: message seconds and their share, the largest first
    top_cause=_string, causes=ArrayType(struct(cause=_string, seconds=_double, share=_double)),
    priorities=ArrayType(PRIORITY),
    # dead letters there are of this window
    dead_letters=_long, dead_reasons=ArrayType(struct(reason=_string, count=_long)),
    # `advice` is raise, lower, keep or unknown; `recommended_qps` null if unknown
    advice=_string, recommended_qps=_double, reason=_string,
)  # fmt: skip
"""A row for each tenant and window."""

NOISY = struct(
    window_start=_time, window_end=_time, project=_string,
    share_in_flight=_double, share_handling=_double, due=_double, got_over_due=_double, wait_p95_s=_double,
    # the other tenants that weren't noisy in this window: how many, the middle and the worst of their p95, how many
    # were late, how many mostly waited for handlers that others had
    quiet=_long, quiet_p95_s=_double, quiet_worst_p95_s=_double, quiet_late=_long, quiet_crowded=_long,
    suffered=BooleanType(), sentence=_string,
)  # fmt: skip
"""A row for each window and tenant that took much more than it was due."""

QUALITY = struct(
    window_start=_time, window_end=_time, records=_long, nodes=_long,
    missing=_long, duplicated=_long, late=_long, skewed=_long, unreadable=_long, newer=_long,
    # epochs that another one followed without a last word; messages that are missing for it
    killed=ArrayType(struct(node=_string, partition=_int)), uncounted=_long,
    # nodes that said nothing any more at the window's end, though what they owned has no other owner
    silent=_strings, skewed_nodes=_strings,
    sentence=_string,
)  # fmt: skip
"""A row for each window: how much the figures can be trusted."""

RECOMMENDED = struct(project=_string, qps=_double, recommended_qps=_double, reason=_string)
"""A row for each tenant whose quota should be another one."""
