"""Schemas of the report tables. Times are UTC; durations seconds; rates messages per second; shares from 0 to 1.

There are two stages, so that the same code serves batch and streaming jobs:

1. `Grains`: LEVELS, WAIT_LEVELS (in a report, WAIT_LISTS) and RECORDS, made from METER; small and mergeable. Rows may
   be appended in any order and more than once, and `merge_grains` gives the same result (spark/reports/grains.py).
2. TENANTS, made from the grains and their timeline; NOISY and RECOMMENDED, made from TENANTS; QUALITY, made from the
   same timeline and NODE_RECORDS (spark/reports/tenants.py and its neighbours).

The first records read should be some time (`LEAD_S`) older than the first window: counters are cumulative, and a queue
that doesn't change is reported only now and then.
"""

from __future__ import annotations

from pyspark.sql.types import ArrayType, BooleanType, DoubleType, IntegerType, LongType, StringType, TimestampType

from evenlane.spark.schemas import COUNTERS, WAITED, struct

_string, _int, _long, _double, _time = StringType(), IntegerType(), LongType(), DoubleType(), TimestampType()
_strings = ArrayType(_string)

LEAD_S = 1200
"""How much earlier than the first window a report should start reading, in s. Unless nodes' intervals are longer than
10 s, each queue is reported at least three times in this time.
"""
TOPIC = ("qps", "may_use", "weight", "reserve", "concurrency", "fairness")
SPENT = ("dwelt_s", "ran_s")
CUMULATIVE = (*COUNTERS, *SPENT, *WAITED)
ENDED = ("handled", "retried", "dead", "expired", "dropped")
"""Counters of messages that left their queue."""
COUNTED = (*ENDED, "attempts")
"""Counters that are divided at a grain's start: see `first_at` in LEVELS."""

LEVELS = struct(
    # `grain` is its start, by event time
    grain=_time, node=_string, run=_long, partition=_int, epoch=_long, project=_string, group=_int, priority=_string,
    since=_time, closed=BooleanType(),
    # first and last record of the grain with the queue, and when that last one was made (event time)
    first_number=_long, number=_long, last_at=_time,
    **dict.fromkeys(TOPIC, _double),
    # as last reported, but `longest_s` is the longest in the grain
    backlog=_long, oldest_s=_double, in_flight=_long, longest_s=_double,
    # cumulative, as last reported
    **dict.fromkeys(COUNTERS, _long), **dict.fromkeys((*SPENT, *WAITED), _double),
    # the first record of the grain with the queue: when it was made, the time it covers, messages that waited or were
    # in flight, counters. What it reports has partly happened in the grain before
    first_at=_time, first_span_s=_double, first_waiting=_long,
    **{f"first_{name}": _long for name in COUNTED},
)  # fmt: skip
"""A row per grain and (queue, epoch) reported in it. A row without a project only names the owner of a partition."""

WAIT_COUNTS = struct(bucket=_int, first_number=_long, first_count=_long, count=_long)
"""A bucket of waits: its count is cumulative, as first and as last reported."""

WAIT_LEVELS = struct(
    grain=_time, node=_string, run=_long, partition=_int, epoch=_long, project=_string, group=_int, priority=_string,
    since=_time, **{field.name: field.dataType for field in WAIT_COUNTS},
)  # fmt: skip
"""A row per bucket of waits (engine/core/stats/wait_histogram.py) reported in a grain, which may be longer than those
of LEVELS: up to a window, as percentiles need no finer ones.
"""

WAIT_LISTS = struct(
    grain=_time, node=_string, run=_long, partition=_int, epoch=_long, project=_string, group=_int, priority=_string,
    since=_time, waits=ArrayType(WAIT_COUNTS),
)  # fmt: skip
"""WAIT_LEVELS with all buckets of a queue in one row: a report passes far fewer rows from Spark to Polars."""

RECORDS = struct(
    # `event` is the event time: `at`, or `stored` if the node's clock is wrong
    grain=_time, stored=_time, sequence=_long, event=_time, version=_int, problem=_string,
    node=_string, run=_long, number=_long, after=_long, at=_time, span_s=_double, slots=_int,
)  # fmt: skip
"""A row per message of the stream, readable or not."""

EPOCH_REPORTS = struct(
    node=_string, run=_long, partition=_int, epoch=_long,
    began=_time, first_at=_time, reported_at=_time, handed_over=BooleanType(), named=BooleanType(),
)  # fmt: skip
"""A row per epoch of a partition, from some rows of LEVELS: see `Timeline`. `first_at` and `reported_at` are the times
of its first and last reports.
"""

RUN_RECORDS = struct(
    node=_string, run=_long, run_number=_long, run_at=_time, first_after=_long, run_from=_time, run_to=_time,
    last_number=_long, run_span_s=_double,
)  # fmt: skip
"""A row per run of a node, from some readable rows of RECORDS: see `Timeline`. `run_from` is the start of the time that
they cover; `last_number` and `run_span_s` are those of the last one.
"""

NODE_RECORDS = struct(
    node=_string, window_start=_time, records=_long,
    missing=_long, duplicated=_long, late=_long, skewed=_long, unreadable=_long, newer=_long,
    last_event=_time, last_span_s=_double,
)  # fmt: skip
"""A row per node and window with records: how many of them are readable, and how many have which problem. `last_event`
and `last_span_s` are those of the last readable one.
"""

WAITS = {"wait_p50_s": _double, "wait_p95_s": _double, "wait_p99_s": _double, "wait_max_s": _double}
FLOWS = {
    **dict.fromkeys(("arrived", "first_puts", "handled", "retried", "dead", "expired", "dropped", "attempts"), _long),
    # messages per second; `drain_rate` is of all ends, `failed_rate` of failed attempts (retried and dead)
    "arrival_rate": _double, "drain_rate": _double, "handled_rate": _double, "failed_rate": _double,
}  # fmt: skip
FORECAST = {
    # growth of the backlog in messages per second (negative: shrinks), and growing, shrinking or steady
    "trend": _double, "trend_word": _string,
    # time until the backlog is empty, null unless `empty_word` is `empty` or `expected`; otherwise that is `never` or
    # `unknown`. The band may have an end where `empty_s` is null: by chance the backlog may shrink
    "empty_s": _double, "empty_low_s": _double, "empty_high_s": _double, "empty_word": _string,
}  # fmt: skip

PRIORITY = struct(
    priority=_string, backlog=_long, in_flight=_long, oldest_s=_double, target_s=_double,
    **WAITS, **FLOWS, **FORECAST,
    # since when the oldest message is late, and by how much now; otherwise when one will be, at this rate: all null if
    # the target is met
    late_since=_time, late_by_s=_double, miss_at=_time,
)  # fmt: skip

FIGURES = struct(
    project=_string, priority=_string, window_start=_time, window_end=_time, covered_s=_double,
    backlog=_long, in_flight=_long, oldest_s=_double, target_s=_double,
    **WAITS, **FLOWS, uncounted=_long, **FORECAST, late_since=_time, late_by_s=_double, miss_at=_time,
    qps=_double, weight=_double, got_over_due=_double, in_flight_mean=_double,
    ran_s=_double, **dict.fromkeys(WAITED, _double),
    # attempts in the window, as if all nodes had reported up to its end; messages and attempts per second in one of the
    # busiest grains
    paced_attempts=_double, arrival_peak=_double, used_peak=_double,
)  # fmt: skip
"""A row per tenant, priority (and all of them together) and window."""

TENANTS = struct(
    # `covered_s` is the part of the window with data: rates are over that
    window_start=_time, window_end=_time, project=_string, covered_s=_double,
    # at the window's end
    backlog=_long, in_flight=_long, oldest_s=_double,
    # of waits that ended in the window
    **WAITS,
    **FLOWS, uncounted=_long,
    **FORECAST,
    # whether the backlog will be empty within the target
    empty_in_time=BooleanType(),
    # the worst of the priorities
    late=BooleanType(), late_priority=_string, late_since=_time, late_by_s=_double,
    miss_priority=_string, miss_at=_time,
    # quota; attempts over what it would have allowed, in the whole window and in the busiest grain
    qps=_double, weight=_double, quota_used=_double, quota_peak=_double,
    # shares of all tenants' messages in flight and handling time; share got over share due
    in_flight_mean=_double, share_in_flight=_double, share_handling=_double, ran_s=_double, got_over_due=_double,
    # what messages waited for: message seconds and their share, the largest first
    top_cause=_string, causes=ArrayType(struct(cause=_string, seconds=_double, share=_double)),
    priorities=ArrayType(PRIORITY),
    # dead letters of this window
    dead_letters=_long, dead_reasons=ArrayType(struct(reason=_string, count=_long)),
    # `advice` is raise, lower, keep or unknown; `recommended_qps` is null if unknown
    advice=_string, recommended_qps=_double, reason=_string,
)  # fmt: skip
"""A row per tenant and window."""

NOISY = struct(
    window_start=_time, window_end=_time, project=_string,
    share_in_flight=_double, share_handling=_double, due=_double, got_over_due=_double, wait_p95_s=_double,
    # the other tenants that weren't noisy in this window: their number, the median and the worst of their p95, how many
    # were late, how many mostly waited for handlers used by others
    quiet=_long, quiet_p95_s=_double, quiet_worst_p95_s=_double, quiet_late=_long, quiet_crowded=_long,
    suffered=BooleanType(), sentence=_string,
)  # fmt: skip
"""A row per window and tenant that took much more than its due share."""

QUALITY = struct(
    window_start=_time, window_end=_time, records=_long, nodes=_long,
    missing=_long, duplicated=_long, late=_long, skewed=_long, unreadable=_long, newer=_long,
    # epochs without a final report before the next one; messages not counted because of that
    killed=ArrayType(struct(node=_string, partition=_int)), uncounted=_long,
    # nodes that no longer reported at the window's end, although they still owned partitions
    silent=_strings, skewed_nodes=_strings,
    sentence=_string,
)  # fmt: skip
"""A row per window: how far the figures can be trusted."""

RECOMMENDED = struct(project=_string, qps=_double, recommended_qps=_double, reason=_string)
"""A row per tenant whose quota should change."""
