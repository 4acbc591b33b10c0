"""Recommended quotas and their reasons, from hand-made figures."""

import pytest
from pyspark.sql import functions as F  # noqa: N812

from evenlane.spark.reports import advice

HOUR = 3600
EMPTY_S = 3600.0
COLUMNS = (
    "project string, window_start int, covered_s double, used_peak double, qps double, backlog long,"
    " arrival_rate double, arrival_peak double, quota_share double, quota_peak double,"
    " causes array<struct<cause:string>>, trend_word string, late boolean"
)


def advised(spark, *rows):
    """Return (advice, recommended quota, reason) for each window."""
    frame = spark.createDataFrame(list(rows), COLUMNS).withColumns(advice.calm(HOUR))
    frame = frame.withColumn("need", advice.need(EMPTY_S)).withColumn("advice", advice.advice(HOUR))
    frame = frame.withColumn("recommended_qps", advice.recommended()).withColumn("reason", advice.reason(EMPTY_S))
    found = frame.orderBy("project", "window_start").collect()
    return [(row.advice, row.recommended_qps, row.reason) for row in found]


def window(project, number=0, **figures):
    """An hour of a tenant with a quota of 100/s, which gets 10/s and has no backlog."""
    values = {
        "covered_s": 3600.0, "used_peak": 10.0, "qps": 100.0, "backlog": 0, "arrival_rate": 10.0, "arrival_peak": 10.0,
        "quota_share": None, "causes": [], "trend_word": "steady", "late": False,
    } | figures  # fmt: skip
    peak = values["used_peak"] / values["qps"] if values["qps"] else None
    order = ("covered_s", "used_peak", "qps", "backlog", "arrival_rate", "arrival_peak", "quota_share")
    return (
        project,
        number,
        *(values[name] for name in order),
        peak,
        values["causes"],
        values["trend_word"],
        values["late"],
    )


def used(peak):
    """At the busiest time 120 messages per second arrived, and `peak` attempts per second were made."""
    return {"backlog": 3600, "arrival_rate": 110.0, "arrival_peak": 120.0, "used_peak": peak}


def test_flood_is_not_advised_to_raise_its_quota(spark):
    """X13: at three times its quota; at 1.5 times it still is."""
    waiting = {"backlog": 7_200, "used_peak": 100.0, "quota_share": 0.9, "causes": [("quota",)]}
    flood, growth = advised(
        spark,
        window("1 flood", arrival_rate=300.0, arrival_peak=310.0, **waiting),
        window("2 growth", arrival_rate=150.0, arrival_peak=160.0, **waiting),
    )
    assert ("keep", 100.0) == flood[:2]
    assert (
        "It offers 3 x its quota of 100: its producer slows down, or 380/s, which is 3.8 x the quota, takes what comes"
        " and clears what waits."
    ) == flood[2]
    assert ("raise", 200.0) == growth[:2]


def test_quota_is_raised_lowered_or_kept_with_a_reason(spark):
    waiting = used(100.0)
    found = advised(
        spark,
        window("1 idle"),
        window("2 idle before, just begun"),
        window("2 idle before, just begun", 1, covered_s=600.0),
        window("3 just begun", covered_s=600.0),
        window("4 busy before", used_peak=90.0),
        window("4 busy before", 1, covered_s=600.0),
        window("5 held up", quota_share=0.9, causes=[("quota",)], **waiting),
        window("6 no handlers", quota_share=0.1, causes=[("handlers_busy",)], **waiting),
        window("7 unknown", qps=None),
        window("8 fits", used_peak=70.0),
        window("9 held up, by a node that was away, too", quota_share=0.9, causes=[("quota",)], **used(60.0)),
        window("9 held up, and done meanwhile", quota_share=0.9, causes=[("quota",)], **used(100.0) | {"backlog": 0}),
        window("9 one group held up", quota_share=0.9, causes=[("quota",)], **used(40.0)),
    )
    lower, keep, raised = ("lower", 50), ("keep", 100), ("raise", 150)
    assert [
        lower, lower, lower, keep, keep, keep, raised, keep, ("unknown", None), keep, raised, raised, keep,
    ] == [reported[:2] for reported in found]  # fmt: skip
    fits, hardly = "The quota fits what comes.", "At the busiest time 10 attempts/s were made of the quota of 100"
    short = "share of it is what is short; more of it in all would hardly help."
    more = "120 messages/s came at a busy time and 3,600 wait, mostly for the quota of 100: 150 takes what comes"
    assert [
        f"{hardly}, and nothing waits: 50 would do.",
        "At the busiest time 10 % of the quota was used: a whole hour or day tells whether less would do.",
        fits,
        f"{more}, clears what waits in 60 minutes, and leaves a fifth to spare.",
        "Messages wait, mostly as all handlers are busy; a higher quota would not help.",
        "The quota isn't known: no node has reported it.",
        f"Messages wait for the quota, though at most 40 % of it was used: a group's, or a node's, {short}",
    ] == [found[number][2] for number in (0, 3, 4, 6, 7, 8, 12)]


def test_quota_below_one_is_formatted_and_follows_arrivals(spark):
    """Only arrivals raise it, 0.5 is not shown as 0, and the reason says whether a backlog is left."""
    small = {"qps": 0.5, "quota_share": 0.9, "causes": [("quota",)]}
    found = advised(
        spark,
        window("1 idle by now", **small | {"used_peak": 0.5, "arrival_rate": 0.0, "arrival_peak": 0.01}),
        window("2 held up", **small | {"used_peak": 0.5, "arrival_rate": 0.5, "arrival_peak": 1.0}),
        window("3 one waits", **small | {"used_peak": 0.5, "arrival_rate": 0.5, "arrival_peak": 1.0, "backlog": 1}),
        window("4 hardly used", qps=1.5, used_peak=0.01, arrival_rate=0.01, arrival_peak=0.01),
    )
    assert [("keep", 0.5), ("raise", 1.2), ("raise", 1.2), ("lower", 1.0)] == [reported[:2] for reported in found]
    one, end = "1 message/s came at a busy time", "and leaves a fifth to spare."
    assert [
        f"{one}, and what waited did so mostly for the quota of 0.5: 1.2 takes what comes, {end}",
        f"{one} and 1 waits, mostly for the quota of 0.5: 1.2 takes what comes, clears what waits in 60 minutes, {end}",
        "At the busiest time 0.01 attempts/s were made of the quota of 1.5, and nothing waits: 1 would do.",
    ] == [reported[2] for reported in found[1:]]


@pytest.mark.parametrize(
    ("rate", "up"),
    [(0, 0), (0.0612, 0.062), (0.6, 0.6), (1.2, 1.2), (9.91, 10), (11, 11), (101, 110), (12_345, 13_000)],
)
def test_quota_is_rounded_up_to_two_digits(spark, rate, up):
    [[found]] = spark.range(1).select(advice.round_rate(F.lit(float(rate)))).collect()
    assert up == found
