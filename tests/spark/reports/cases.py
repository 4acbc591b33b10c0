"""Meter records of hand-made tenants. Each has a partition and a node of its own, so that one frame holds all."""

from __future__ import annotations

import datetime as dt
import random
from bisect import bisect_left
from collections import Counter
from typing import Any

from evenlane.engine.core.stats.wait_histogram import WAIT_BOUNDS_S
from evenlane.spark.schemas import METER
from tests.spark.reports.rows import INTERVAL_S, after, dead, empty, meter

Rows = list[tuple[Any, ...]]
ODD = ("<script>alert(1)</script>", "null", 'o\'clock "x"', "поезд-列車", "a" * 64, "")
HEIRS = ({"partition": 1024, "epoch": 2, "since": after(55), "closed": False}, {})
WAITED_S = [random.Random(8).lognormvariate(1, 2) for _ in range(1000)]


def metered(project: str, partition: int, intervals: int, **columns: Any) -> Rows:
    """`columns` may be functions of the interval's number, from 0."""
    head = {"project": project, "partition": partition, "node": f"node-{partition}", "after": 0}
    return [
        meter(
            number * INTERVAL_S,
            **head
            | {"sequence": partition * 100_000 + number}
            | {name: value(number) if callable(value) else value for name, value in columns.items()},
        )
        for number in range(intervals)
    ]


def rows() -> Rows:
    return [
        # 15/s arrive, and 10/s are handled, which is the quota
        *metered("growing", 1001, 30, priority="high", arrived=lambda n: 150 * n, handled=lambda n: 100 * n,
              attempts=lambda n: 100 * n, backlog=lambda n: 50 * n, oldest_s=lambda n: 3.0 * n,
              waited_quota_s=lambda n: 900.0 * n, waited_ordered_s=lambda n: 100.0 * n),
        # 900 wait at first, and the backlog shrinks by 2/s
        *metered("shrinking", 1002, 30, priority="low", arrived=lambda n: 900 + 30 * n, handled=lambda n: 50 * n,
              attempts=lambda n: 50 * n, backlog=lambda n: 900 - 20 * n + n // 6 % 2 * 10,
              oldest_s=30.0, waited_endpoint_s=1.0),
        *metered("one-record", 1003, 1, priority="high", arrived=3, backlog=3, oldest_s=120.0),
        *(row for number, name in enumerate(ODD) for row in metered(name, 1010 + number, 2, arrived=1, backlog=1)),
        # a clock that is 3 h ahead; and a right one with a slow store
        *(ahead(row) for row in metered("ahead", 1004, 2, arrived=lambda n: 5 * n, backlog=lambda n: 5 * n)),
        # a clock that is 10 minutes behind; and a right one with a record that was delayed by most of a minute
        *metered("behind", 1025, 2, at=lambda n: after(n * INTERVAL_S - 600), arrived=lambda n: n, backlog=lambda n: n),
        *metered("held", 1026, 2, at=lambda n: after(280 * n), stored=lambda n: after(330 * n), arrived=lambda n: 5 * n,
              backlog=lambda n: 5 * n),
        *metered("delayed", 1005, 2, span_s=5.0, stored=lambda n: after(n * INTERVAL_S + 20)),
        # its node writes one record, and none after it
        *metered("silent", 1006, 1, arrived=7, backlog=7, oldest_s=10.0),
        # records of an older release, without these fields
        *metered("older", 1007, 2, arrived=lambda n: n, backlog=lambda n: n, qps=None, weight=None, may_use=None,
              waits=None, longest_s=None, oldest_s=None, ran_s=None, since=None, dwelt_s=None),
        # its owner is killed after it reported 5 of 9 as waiting; the next owner finds none, but reports another queue
        *metered("killed", 1008, 3, arrived=9, handled=4, attempts=4, backlog=5),
        *metered("heir", 1008, 2, epoch=2, node="node-heir", arrived=lambda n: n + 1, backlog=lambda n: n + 1,
              at=lambda n: after(60 + n), stored=lambda n: after(60 + n), sequence=lambda n: 100_900_000 + n),
        # the same, but the next owner reports only that the partition is its own
        *metered("gone", 1024, 3, arrived=9, handled=4, attempts=4, backlog=5),
        *(empty(60 + n * INTERVAL_S, sequence=102_400_100 + n, node="node-heir-2", **HEIRS[n > 0]) for n in range(3)),
        # etcd and NATS were recreated: epochs have lower numbers than those in the archive, or the same
        *metered("rebuilt", 1027, 3, epoch=9000, arrived=9, handled=4, attempts=4, backlog=5),
        *metered("rebuilt-alike", 1028, 3, epoch=7, arrived=9, handled=4, attempts=4, backlog=5),
        *(restarted(row) for row in metered("rebuilt", 1027, 2, epoch=7, arrived=lambda n: 20 * n,
                                            backlog=lambda n: 20 * n)),
        *(restarted(row) for row in metered("rebuilt-alike", 1028, 2, epoch=7, arrived=lambda n: 20 * n,
                                            backlog=lambda n: 20 * n, oldest_s=1.0)),
        # the previous owner's first record arrives last, and its clock is wrong by half a minute
        *metered("crossed", 1029, 2, epoch=5, node="node-second", since=after(-1), backlog=2, arrived=2),
        *metered("crossed", 1029, 1, epoch=4, since=after(25), at=after(30), stored=after(30), backlog=1, arrived=1,
              closed=True),
        *metered("hog", 1009, 30, in_flight=60, ran_s=lambda n: 600.0 * n, attempts=lambda n: 10 * n,
              handled=lambda n: 10 * n, arrived=lambda n: 10 * n, fairness=3.0),
        *metered("victim", 1020, 30, priority="high", in_flight=2, ran_s=lambda n: 10.0 * n, attempts=lambda n: n,
              handled=lambda n: n, arrived=lambda n: 60 + n, backlog=60, oldest_s=200.0, fairness=0.3,
              waited_fairness_s=lambda n: 600.0 * n),
        *metered("waits", 1021, 2, arrived=lambda n: 1000 * n, handled=lambda n: 1000 * n, attempts=lambda n: 1000 * n,
              waits=lambda n: buckets() if n else [], longest_s=lambda n: max(WAITED_S) if n else 0.0),
        # counts from before the end of the first available grain (a minute) are ignored
        *metered("middle", 1022, 9, number=lambda n: 500 + n, after=lambda n: 499 + n,
              since=after(-3600), arrived=lambda n: 1000 + n,
              handled=lambda n: 900 + n, backlog=100, oldest_s=5.0, waits=lambda n: [(9, 900 + n)]),
        # record 2 was stored, as record 3 knows, but is missing; record 3 came twice
        *metered("gap", 1023, 1, arrived=1, backlog=1), *gap(),
        empty(5, sequence=200_000_001, node="junk", problem="version 9 isn't known", version=9, run=None, number=None),
        empty(5, sequence=200_000_002, node="junk", problem="it isn't a record", version=None, run=None, number=None),
    ]  # fmt: skip


def young() -> Rows:
    """Records from 150 s on, for 366 s: 40/s arrive and 20/s are handled, which is the quota."""
    return [
        meter(150 + at, project="young", priority="low", number=number, at=after(150 + at), stored=after(150 + at),
              qps=20.0, arrived=40 * at, handled=20 * at, attempts=20 * at, backlog=20 * at, oldest_s=at / 2,
              waited_quota_s=10.0 * at * at, sequence=number, after=number - 1, since=after(150))
        for number, at in enumerate((*range(10, 361, 10), 366), start=1)
    ]  # fmt: skip


def young_and_others() -> Rows:
    """Records of `young`, and of tenants with a shorter history in the same time."""
    others, project = {"growing", "shrinking", "hog", "victim", *ODD}, METER.names.index("project")
    return [*young(), *(later(row, 160, "at", "stored", "since") for row in rows() if row[project] in others)]


def ahead(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return later(row, 3 * 3600, "at")


def restarted(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same record, five minutes later, of another run in an environment that was made then."""
    return later(row, 300, "at", "stored", "since", run=2)


def later(row: tuple[Any, ...], by_s: int, *times: str, **columns: Any) -> tuple[Any, ...]:
    named = dict(zip(METER.names, row, strict=True))
    return tuple({**named, **{name: named[name] + dt.timedelta(seconds=by_s) for name in times}, **columns}.values())


def gap() -> Rows:
    common = {"project": "gap", "partition": 1023, "node": "node-1023", "number": 3, "after": 2, "backlog": 3}
    return [meter(20, **common, sequence=102_300_003 + again, arrived=3) for again in range(2)]


def buckets() -> list[tuple[int, int]]:
    return sorted(Counter(bisect_left(WAIT_BOUNDS_S, wait) for wait in WAITED_S).items())


def dead_letters() -> Rows:
    reasons = {"boom": 5, "rejected: no <b>name</b>": 3, "a": 1, "b": 1, "c": 1, "d": 1, None: 2}
    return [dead(30, "growing", reason) for reason, count in reasons.items() for _ in range(count)]
