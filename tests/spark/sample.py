"""Generates tenants of a day from a seed, in the schemas of reports (spark/reports/schemas.py)."""

import math
import random
from datetime import UTC, datetime, timedelta

START = datetime(2026, 1, 31, tzinfo=UTC)
HOUR = timedelta(hours=1)
ODD = ("acme", "globex-eu", "initech", "<img src=x onerror=alert(1)>", "null", "постачальник", '"; DROP', "</script>")
_REASON = "Reject: <b>no such account</b>"
_ADVICE = "At the busiest minute 130/s arrived, and 20,000 wait: 140/s has them gone within 1 h."
_TARGETS = {"high": 60.0, "mid": 600.0, "low": 3600.0}
_CAUSES = ("fairness", "quota", "higher_priority")


def tenants(count=12, windows=24, length=HOUR, seed=7):
    """The first two are late, the third will be late, the fourth has dead letters, the fifth is empty."""
    return [
        _tenant(name, number, START + length * window, length, random.Random(f"{seed}/{number}/{window}"))
        for number, name in enumerate((*ODD, *(f"tenant-{each:03}" for each in range(count)))[:count])
        for window in range(windows)
    ]


def _tenant(name, number, start, length, chance):
    late, soon, empty = number < 2, number == 2, number == 4
    backlog = (
        0 if empty else round((20_000 if late else 40) * (1.2 + math.sin(start.hour / 4 + number)) * chance.random())
    )
    wave = 100 * (1.1 + math.sin(start.hour / 4 + number))
    waits = {
        "wait_p50_s": 0.012,
        "wait_p95_s": 0.3 + chance.random(),
        "wait_p99_s": 240.0 if late else 1.9,
        "wait_max_s": 700.5,
    }
    flows = {
        "arrived": round(wave * 3600), "first_puts": round(wave * 3600) - 5, "handled": round(wave * 3500),
        "retried": 5, "dead": 7 if number == 3 else 0, "expired": 0, "dropped": 0, "attempts": round(wave * 3510),
        "arrival_rate": wave, "drain_rate": wave * (0.9 if late else 1.0),
        "handled_rate": wave * (0.9 if late else 1.0), "failed_rate": 0.0,
    }  # fmt: skip
    forecast = {
        "trend": wave * 0.1 if late else 0.0, "trend_word": "growing" if late else "steady",
        "empty_s": None if late else 40.0, "empty_low_s": None if late else 31.0,
        "empty_high_s": None if late else 300.0, "empty_word": "never" if late else "empty" if empty else "expected",
    }  # fmt: skip
    until = start + length
    priorities = [
        {
            "priority": priority, "backlog": round(backlog * part), "in_flight": 2,
            "oldest_s": None if empty else 900.0 if late else 2.5, "target_s": target, **waits, **flows, **forecast,
            "late_since": until - timedelta(minutes=14) if late and priority == "high" else None,
            "late_by_s": 840.0 if late and priority == "high" else None,
            "miss_at": until + timedelta(minutes=25) if soon and priority == "mid" else None,
        }
        for (priority, target), part in zip(_TARGETS.items(), (0.1, 0.6, 0.3), strict=True)
    ]  # fmt: skip
    shares = sorted((chance.random() for _ in range(3)), reverse=True)
    causes = [
        {"cause": cause, "seconds": share * 1000, "share": share / sum(shares)}
        for cause, share in zip(_CAUSES, shares, strict=True)
    ]
    return {
        "window_start": start, "window_end": until, "project": name, "covered_s": length.total_seconds(),
        "backlog": backlog, "in_flight": 6, "oldest_s": None if empty else 900.0 if late else 2.5,
        **waits, **flows, "uncounted": 0, **forecast, "empty_in_time": not late,
        "late": late, "late_priority": "high" if late else None,
        "late_since": until - timedelta(minutes=14) if late else None, "late_by_s": 840.0 if late else None,
        "miss_priority": "mid" if soon else None, "miss_at": until + timedelta(minutes=25) if soon else None,
        "qps": 100.0, "weight": 100.0, "quota_peak": 1.0,
        "quota_used": 1.0 if late else math.nan if number == 5 else 0.4,
        "in_flight_mean": 3.0, "share_in_flight": 0.1, "share_handling": 0.42 if number == 0 else 0.05, "ran_s": 900.0,
        "got_over_due": 1.02,
        "top_cause": causes[0]["cause"], "causes": causes, "priorities": priorities,
        "dead_letters": flows["dead"], "dead_reasons": [{"reason": _REASON, "count": 7}] if number == 3 else [],
        "advice": "raise" if late else "keep", "recommended_qps": 140.0 if late else 100.0,
        "reason": _ADVICE if late else "It uses 40 %.",
    }  # fmt: skip


def noisy(until):
    return {
        "window_start": until - HOUR, "window_end": until, "project": "acme", "share_in_flight": 0.4,
        "share_handling": 0.42, "due": 0.1, "got_over_due": 4.2, "wait_p95_s": 0.4, "quiet": 11, "quiet_p95_s": 0.2,
        "quiet_worst_p95_s": 1.2, "quiet_late": 0, "quiet_crowded": 0, "suffered": False,
        "sentence": "acme took 42 % of the handling time, where 10 % was due; the 11 others didn't suffer.",
    }  # fmt: skip


def quality(until):
    return {
        "window_start": until - HOUR, "window_end": until, "records": 1080, "nodes": 3, "missing": 0, "duplicated": 0,
        "late": 0, "skewed": 0, "unreadable": 0, "newer": 0, "killed": [{"node": "node-1", "partition": 3}],
        "uncounted": 0, "silent": [], "skewed_nodes": [],
        "sentence": "1,080 records of 3 nodes. node-1 was killed: the last interval of partition 3 isn't counted.",
    }  # fmt: skip
