"""Recommends a quota per tenant, with the reason. The functions return columns of a frame with TENANTS' figures and
`arrival_peak`, `used_peak` (messages and attempts per second in one of the busiest grains), `calm_peak` (`used_peak`
over the window, and over the previous one if the window has just begun) and `full` (one of these windows is fully
covered by data).

The needed rate is the larger of two, plus a fifth: the arrival rate at a busy time; or the average arrival rate plus
the rate that clears the backlog within the target. The quota is raised to the needed rate if the quota is what delays
messages, and at least half of it was used at the busiest time (a node may have been away for part of it). A project
that offers more than 2.5 times its quota gets no such advice: a higher quota would take slots from others. The quota is
lowered if less than half of it was used at the busiest time of a whole window of an hour or more: to twice the used
rate, but at most by half at once, and never below 1. Otherwise it stays.
"""

from __future__ import annotations

from pyspark.sql import Column, Window
from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports.columns import ratio

HEADROOM = 1.2
HARDLY_USED = 0.5
HELD_UP = 0.5
"""Share of the waiting time that is due to the quota: at this share or more, the quota is what delays messages."""
FLOOD = 2.5
"""A project that offers more than this many times its quota is a flood: no higher quota is recommended."""
LEAST_WINDOW_S = 3600
LEAST_QPS = 1.0
"""A quota is never lowered below this."""
_SLOWEST = 0.001
_WORDS = {
    "concurrency": "for those in flight, as its topic or endpoint allows no more at once",
    "headroom": "as slots are kept for lighter tenants",
    "fairness": "as other tenants have their share of the handlers",
    "handlers_busy": "as all handlers are busy",
    "ordered": "for earlier messages of the same key",
    "endpoint": "as the endpoint, or the handler, asked for pauses",
    "paused": "as the topic is paused",
    "no_handler": "as no handler takes its messages",
    "no_owner": "as no node owns its partitions",
}


def round_rate(rate: Column) -> Column:
    """Round up to two digits."""
    unit = F.pow(F.lit(10.0), F.floor(F.log10(F.greatest(rate, F.lit(_SLOWEST)))) - 1)
    return F.round(F.ceil(rate / unit - 1e-9) * unit, 6)  # (0.1 * 12 is slightly more than 1.2)


def calm(window_s: int) -> dict[str, Column]:
    """Return `full` and `calm_peak`, for a frame with all windows of a tenant. A window that has just begun says little
    about unused quota; together with the previous one it does.
    """
    before = Window.partitionBy("project").orderBy("window_start")
    whole = F.col("covered_s") >= window_s - 1
    peak = F.greatest("used_peak", F.when(~whole, F.lag("used_peak").over(before)))
    return {"full": whole | F.coalesce(F.lag(whole).over(before), F.lit(False)), "calm_peak": peak}


def need(empty_target_s: float) -> Column:
    """Return the needed rate, in messages per second."""
    clearing = F.col("arrival_rate") + F.col("backlog") / empty_target_s
    return round_rate(HEADROOM * F.greatest(F.col("arrival_peak"), clearing))


def advice(window_s: int) -> Column:
    """Return the advice, for a frame that also has `need` and `quota_share` (of the waiting time)."""
    qps, held = F.col("qps"), F.coalesce("quota_share", F.lit(0.0))
    short = (F.col("need") > qps) & (held >= HELD_UP) & (F.col("quota_peak") >= HARDLY_USED)
    idle = F.lit(window_s >= LEAST_WINDOW_S) & F.col("full") & _hardly_used()
    return F.when(qps.isNull(), "unknown").when(short & ~_floods(), "raise").when(idle, "lower").otherwise("keep")


def recommended() -> Column:
    """Return the recommended quota, for a frame that also has `advice`."""
    return (
        F.when(F.col("advice") == "raise", F.col("need"))
        .when(F.col("advice") == "lower", _lowered())
        .otherwise(F.col("qps"))
    )


def reason(empty_target_s: float) -> Column:
    """Return a sentence with its figures, for a frame that also has `advice` and `recommended_qps`."""
    held = F.coalesce("quota_share", F.lit(0.0))
    waiting = F.format_string(
        "%s came at a busy time and %s, mostly for the quota of %s: %s takes "
        f"what comes, clears what waits in {empty_target_s / 60:.0f} minutes, and leaves a fifth to spare.",
        _rate("arrival_peak", "message"), _wait(), _shown("qps"), _shown("recommended_qps"),
    )  # fmt: skip
    waited = F.format_string(
        "%s came at a busy time, and what waited did so mostly for the quota of %s: %s takes what comes, and leaves a"
        " fifth to spare.",
        _rate("arrival_peak", "message"), _shown("qps"), _shown("recommended_qps"),
    )  # fmt: skip
    raised = F.when(F.col("backlog") > 0, waiting).otherwise(waited)
    lowered = F.format_string(
        "At the busiest time %s were made of the quota of %s, and nothing waits: %s would do.",
        _rate("calm_peak", "attempt"), _shown("qps"), _shown("recommended_qps"),
    )  # fmt: skip
    unused = F.format_string(
        "At the busiest time %.0f %% of the quota was used: a whole hour or day tells whether less would do.",
        F.coalesce(ratio(F.col("calm_peak"), F.col("qps")), F.lit(0.0)) * 100,
    )  # fmt: skip
    floods = F.format_string(
        "It offers %s x its quota of %s: its producer slows down, or %s/s, which is %s x the quota, takes what comes"
        " and clears what waits.",
        _shown_ratio("arrival_rate"), _shown("qps"), _shown("need"), _shown_ratio("need"),
    )  # fmt: skip
    return (
        F.when(F.col("advice") == "unknown", "The quota isn't known: no node has reported it.")
        .when(_floods() & (held >= HELD_UP), floods)
        .when(F.col("advice") == "raise", raised)
        .when(F.col("advice") == "lower", lowered)
        .when(_piling_up(), _elsewhere())
        .when(_hardly_used(), unused)
        .otherwise("The quota fits what comes.")
    )


def _floods() -> Column:
    return F.col("arrival_rate") > FLOOD * F.col("qps")


def _shown_ratio(name: str) -> Column:
    return F.regexp_replace(F.format_number(F.col(name) / F.col("qps"), 1), r"\.0$", "")


def _piling_up() -> Column:
    growing = F.coalesce(F.col("trend_word") == "growing", F.lit(False))
    used_up = (F.coalesce("quota_share", F.lit(0.0)) >= HELD_UP) & (F.col("quota_peak") >= HARDLY_USED)
    return (F.col("backlog") > 0) & ((F.col("need") > F.col("qps")) | F.col("late") | growing) & ~used_up


def _elsewhere() -> Column:
    """Return the reason if the quota isn't the cause. Messages behind a higher priority wait for that
    priority's cause.
    """
    words = F.create_map(*(F.lit(text) for pair in _WORDS.items() for text in pair))
    itself = F.expr("filter(causes, each -> each.cause != 'higher_priority')")
    cause = F.get(itself, F.lit(0)).cause
    mostly = F.coalesce(F.concat(F.lit(", mostly "), words[cause]), F.lit(", but not for the quota"))
    unused = F.format_string(
        "Messages wait for the quota, though at most %.0f %% of it was used: a group's, or a node's, share of it is"
        " what is short; more of it in all would hardly help.",
        F.coalesce("quota_peak", F.lit(0.0)) * 100,
    )
    return F.when((cause == "quota"), unused).otherwise(
        F.concat(F.lit("Messages wait"), mostly, F.lit("; a higher quota would not help."))
    )


def _hardly_used() -> Column:
    qps = F.col("qps")
    return (F.col("backlog") == 0) & (F.col("calm_peak") < HARDLY_USED * qps) & (_lowered() < qps)


def _lowered() -> Column:
    return F.greatest(F.lit(LEAST_QPS), round_rate(F.greatest(F.col("qps") / 2, F.col("calm_peak") * 2)))


def _wait() -> Column:
    return F.format_string("%s wait%s", F.format_number("backlog", 0), F.when(F.col("backlog") == 1, "s").otherwise(""))


def _rate(name: str, one: str) -> Column:
    shown = _shown(name)
    return F.concat(shown, F.when(shown == "1", f" {one}/s").otherwise(f" {one}s/s"))


def _shown(name: str) -> Column:
    value = F.col(name)
    digits = F.when(value < 1, F.format_number(value, 3)).otherwise(F.format_number(value, 1))
    return F.regexp_replace(digits, r"\.?0+$", "")
