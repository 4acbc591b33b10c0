"""Noisy tenants, from hand-made figures."""

import polars as pl

from evenlane.spark.reports.noisy import noisy


def tenants(*shares):
    """Tenants of a window: the share of each in the handling time, and how many times its due share that is."""
    return pl.LazyFrame(
        {
            "window_start": 0, "window_end": 1, "project": f"tenant-{number}", "attempts": 1, "backlog": 0,
            "weight": 1.0, "share_in_flight": share, "share_handling": share, "got_over_due": over,
            "in_flight_mean": 2.0, "wait_p95_s": 1.0 + number, "late": False,
            "causes": [{"cause": "quota", "share": 1.0}],
        } for number, (share, over) in enumerate(shares)
    )  # fmt: skip


def test_sentence_rounds_as_people_do():
    [row] = noisy(tenants((0.875, 7.0), (0.125, 1.0))).collect().to_dicts()
    assert row["sentence"].startswith(
        "Had 88 % of the handling time and 88 % of the messages in flight, and 13 % was due"
    )
    assert (1, 2.0, False) == (row["quiet"], row["quiet_p95_s"], row["suffered"])


def test_tenant_without_others_has_disturbed_nobody():
    [row] = noisy(tenants((1.0, 2.0))).collect().to_dicts()
    assert row["sentence"].endswith("there were no others.")
    assert (0, None, False) == (row["quiet"], row["quiet_p95_s"], row["suffered"])


def test_fair_shares_are_not_noisy():
    assert [] == noisy(tenants((0.5, 1.0), (0.5, 1.0))).collect().to_dicts()
