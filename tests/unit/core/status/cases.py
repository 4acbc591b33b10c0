"""Facts about a project, and the status that it has by them (X13)."""

from evenlane.engine.core.records.backlog_answer import Rates
from evenlane.engine.core.status.facts import Failure, StatusFacts, Waiting

NOON = 1_700_049_600_000_000_000  # 15 Nov 2023, 12:00 UTC


def facts(**fields) -> StatusFacts:
    """An active topic of 20/s of which nothing waits."""
    return StatusFacts(**{"project": "acme", "env": "online", "state": "active", "qps": 20.0, **fields})


def mid(messages, oldest_s):
    return (Waiting("mid", messages, oldest_s, 600.0),)


def rates(**fields) -> Rates:
    return Rates(**{"seconds": 30.0, **fields})


# the facts -> name, severity, label, sentence
CASES = [
    ({}, "ok", "ok", "ok", "nothing waits"),
    ({"waiting": mid(3, 0.2), "reasons": {"handlers_busy": 1}}, "ok", "ok", "ok", "3 wait"),
    # failing
    (
        {"rates": rates(arriving=9.0, failed=9.0), "failure": Failure("RuntimeError: boom", NOON)},
        "failing",
        "critical",
        "failing 100 %",
        "everything fails since 15 Nov, 12:00 UTC: RuntimeError: boom",
    ),
    ({"rates": rates(failed=0.03)}, "failing", "critical", "failing 100 %", "everything fails"),
    (
        {"rates": rates(handled=4.0, failed=6.0), "failure": Failure("KeyError: 'id'")},
        "failing",
        "critical",
        "failing 60 %",
        "60 % of its attempts fail, 6/s of 10/s, the last one with KeyError: 'id'",
    ),
    (
        {"rates": rates(handled=9.0, failed=1.0)},
        "failing",
        "warning",
        "failing 10 %",
        "10 % of its attempts fail, 1/s of 10/s",
    ),
    ({"rates": rates(handled=999.0, failed=1.0)}, "ok", "ok", "ok", "nothing waits"),  # a few among many
    # stopped
    (
        {
            "state": "paused",
            "waiting": mid(1_422, 7_200.0),
            "reasons": {"paused": 3},
            "stopped_by": " by jo since 10:02",
        },
        "paused",
        "info",
        "paused",
        "paused by jo since 10:02: 1,422 wait, the oldest for 2h",
    ),
    ({"state": "paused"}, "paused", "info", "paused", "paused: nothing waits"),
    (
        {"state": "paused", "deleted": True, "waiting": mid(1, 5.0)},
        "deleted",
        "warning",
        "deleted",
        "its topic was deleted while messages waited: 1 waits",
    ),
    ({"state": "paused", "deleted": True}, "ok", "ok", "ok", "nothing waits"),
    (
        {"state": "draining", "waiting": mid(2, 3.0)},
        "draining",
        "info",
        "draining",
        "draining: it takes no new messages; 2 wait, the oldest for 3s",
    ),
    (
        {"state": None, "qps": None, "waiting": mid(7, 1.0)},
        "no_topic",
        "critical",
        "no topic",
        "it has no topic, so none of its messages is handled: 7 wait",
    ),
    ({"state": None, "qps": None}, "ok", "ok", "ok", "nothing waits"),
    # nobody handles it
    (
        {"unserved": 2},
        "no_owner",
        "critical",
        "no owner",
        "some of its partitions have no owner: no message there is handled",
    ),
    (
        {"reasons": {"no_owner": 1, "quota": 9}},
        "no_owner",
        "critical",
        "no owner",
        "some of its partitions have no owner: no message there is handled",
    ),
    (
        {"state": "paused", "unserved": 1},
        "no_owner",
        "critical",
        "no owner",
        "some of its partitions have no owner: no message there is handled",
    ),
    (
        {"waiting": mid(5, 9.0), "reasons": {"no_handler": 2}},
        "no_handler",
        "critical",
        "no handler",
        "no handler takes its messages: 5 wait",
    ),
    (
        {"waiting": mid(5, 9.0), "reasons": {"paused": 2}},
        "stuck",
        "critical",
        "stuck",
        "its retries and dead letters can't be stored, so nothing is started: 5 wait",
    ),
    # limits
    (
        {"waiting": mid(7_200, 90.0), "reasons": {"quota": 4}, "rates": rates(arriving=60.0, handled=20.0)},
        "over_quota",
        "warning",
        "over quota 3 x",
        "it offers 3 x its quota: 60/s arrive, 20/s are allowed; 7,200 wait, the oldest for 1m 30s",
    ),
    (
        {
            "waiting": mid(40, 90.0),
            "reasons": {"quota": 4},
            "rates": rates(arriving=18.0, handled=20.0),
            "gone_s": 20.0,
        },
        "waiting",
        "info",
        "waits: quota",
        "40 wait, the oldest for 1m 30s, gone in 20s; it waits for its quota",
    ),
    (
        {"waiting": mid(40, 30.0), "reasons": {"endpoint": 1}},
        "endpoint",
        "warning",
        "endpoint pauses",
        "its endpoint, or its handler, asks for pauses: 40 wait, the oldest for 30s",
    ),
    (
        {"waiting": mid(40, 30.0), "reasons": {"concurrency": 1}, "is_pushed": True},
        "endpoint",
        "warning",
        "slow endpoint",
        "its endpoint is slow: 40 wait, the oldest for 30s",
    ),
    (
        {"waiting": mid(40, 30.0), "reasons": {"concurrency": 1}},
        "waiting",
        "info",
        "waits: concurrency",
        "40 wait, the oldest for 30s; as many are in flight as its topic, or its endpoint, allows",
    ),
    (
        {"rates": rates(handled=9.0, expired=1.0)},
        "expiring",
        "warning",
        "expiring 10 %",
        "1/s expire before a handler begins, 10 % of what leaves",
    ),
    # late
    (
        {"waiting": mid(40, 720.0), "reasons": {"handlers_busy": 4}},
        "late",
        "warning",
        "late",
        "mid is late: 40 wait, the oldest for 12m, and 10m is the target; all handlers are busy",
    ),
    (
        {"waiting": (Waiting("high", 2, 61.0, 60.0), *mid(40, 720.0)), "reasons": {"fairness": 4}},
        "late",
        "warning",
        "late",
        "mid is late: 40 wait, the oldest for 12m, and 10m is the target; other projects are due first",
    ),
    (
        {
            "waiting": mid(40, 30.0),
            "reasons": {"fairness": 2},
            "rates": rates(arriving=9.0, handled=2.0),
            "never": True,
        },
        "waiting",
        "info",
        "waits: fairness",
        "40 wait, the oldest for 30s, and more arrive than leave; other projects are due first",
    ),
]
