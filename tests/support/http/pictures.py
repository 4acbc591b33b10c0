"""Overviews and explanations in the form of the HTTP API, for states that are hard to bring about."""

from datetime import UTC, datetime

from evenlane.engine.admin.overview.messages import RATES
from evenlane.engine.core.records.backlog_answer import Rates
from evenlane.engine.core.status.facts import Failure, StatusFacts, Waiting
from evenlane.engine.core.status.judge import judge

PRIORITIES = ["high", "mid", "low"]
WHY = {
    "quota": "the topic's 100 msg/s are used up",
    "fairness": "other tenants are due first, by weight and by past use",
}


def now():
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def flow(rate=0.0, *, arriving=None, failed=0.0, dead=0.0, expired=0.0):
    """The rates of a project that makes `rate` attempts per second, of which `failed` fail."""
    arrives = rate * 1.2 if arriving is None else arriving
    return dict(zip(RATES, (arrives, rate + expired, rate - failed, failed, dead, expired), strict=True))


def priority(name, backlog=0, reason=None, *, oldest=None, never=False, **rates):
    moves = flow(**rates)
    return {
        "priority": name, "backlog": backlog, "oldest_seconds": (oldest or backlog / 40) if backlog else None,
        "in_flight": 1 if backlog else 0, **moves, "reason": reason,
        "reasons": {reason: 2} if reason else {},
        "gone_in_seconds": None if never else backlog / max(moves["leaving"], 0.5),
        "never_gone": never,
    }  # fmt: skip


def tenant(
    project, backlog=0, reason=None, *, rate=1.0, qps=100.0, state="active", deleted=False, never=False, oldest=None,
    error="", pushed=False, paused_by="", **rates,
):  # fmt: skip
    """A tenant with messages only in the middle priority."""
    moves = flow(rate, **rates)
    parts = [
        priority("high"), priority("mid", backlog, reason, rate=rate, oldest=oldest, never=never, **rates),
        priority("low"),
    ]  # fmt: skip
    facts = StatusFacts(
        project, "online", state, qps,
        tuple(Waiting(each["priority"], each["backlog"], each["oldest_seconds"], 600.0) for each in parts),
        Rates(moves["arriving"], moves["handled"], moves["failed"], 30.0, moves["dead"], moves["expired"]),
        {reason: 2} if reason else {}, deleted=deleted, is_pushed=pushed, failure=Failure(error),
        gone_s=None if never else parts[1]["gone_in_seconds"], never=never, stopped_by=paused_by,
    )  # fmt: skip
    status, *also = (each.describe() for each in judge(facts))
    return {
        "project": project, "state": state, "deleted": deleted, "qps": qps, "quota_now": qps, "backlog": backlog,
        "oldest_seconds": parts[1]["oldest_seconds"], "in_flight": parts[1]["in_flight"], **moves, "reason": reason,
        "status": status, "also": also, "priorities": parts,
    }  # fmt: skip


def node(name, partitions, **fields):
    return {
        "id": name, "answered": True, "http": "http://127.0.0.1:8080", "host": "host-1", "version": "0.1.0",
        "leader": name.endswith("0"), "partitions": partitions, "generation": 7, "backlog": 1200, "in_flight": 40,
        "slots": 64, **flow(171.3, arriving=180.0), "cpu": 0.31, "lease_seconds": 6.8,
        "loop_lag_seconds": 0.004, "settle_lag_seconds": 0.02, "troubles": {},
    } | fields  # fmt: skip


def overview(tenants=(), nodes=(), partitions=128, unowned=(), left_out=None, notes=()):
    whole = {kind: sum(each[kind] or 0 for each in tenants) for kind in ("backlog", "in_flight", *RATES)}
    return {
        "env": "online", "at": now(), "priorities": PRIORITIES, "tenants": [*tenants], "left_out": left_out,
        "nodes": [*nodes], "partitions": partitions, "unowned": [*unowned],
        "totals": {"projects": len(tenants) + (left_out or {}).get("projects", 0)} | whole, "notes": [*notes],
    }  # fmt: skip


def cluster(tick=0):
    """A hot tenant, others, a paused one and one without owner; three nodes."""
    tenants = [
        tenant("acme", 12_480 + 37 * tick, "quota", rate=99.6, never=True),
        tenant("globex-eu", 940 - 5 * (tick % 50), "fairness", rate=210.4, qps=400.0),
        tenant("initech", 120 + (tick * 13) % 60, "concurrency", rate=31.2, qps=50.0),
        tenant("hooli", 86, "paused", rate=0.0, state="paused", never=True),
        tenant("umbrella_research-and-development", 44, "endpoint", rate=2.4, qps=20.0),
        tenant("stark", 12, "higher_priority", rate=64.0),
        tenant("wayne", 7, "no_owner", rate=0.0),
        tenant("wonka", 0, None, rate=12.7 + (tick % 3), qps=25.0),
        tenant("tyrell", 0, None, rate=0.4, qps=5.0),
        tenant("cyberdyne", 3, "paused", rate=0.0, qps=None, state=None, never=True),
    ]
    owned = [[p for p in range(126) if p % 3 == n] for n in range(3)]
    nodes = [node(f"w-{n}", owned[n], cpu=0.2 + n / 10, in_flight=[40, 63, 12][n]) for n in range(3)]
    return overview(
        tenants, nodes, 128, [126, 127],
        notes=["2 of 128 partitions have no owner: their backlog isn't known"],
    )  # fmt: skip


def troubles():
    """A tenant for each status, in an order that isn't that of urgency."""
    boom = "RuntimeError: the payment provider answers 503"
    tenants = [
        tenant("calm", rate=8.0),
        tenant("paused", 1_422, "paused", rate=0.0, state="paused", paused_by=" by jo@laptop since 28 Nov, 10:02 UTC"),
        tenant("failing", rate=9.0, arriving=9.0, failed=9.0, dead=2.0, error=boom),
        tenant("flooding", 7_200, "quota", rate=20.0, qps=20.0, arriving=60.0, oldest=180.0, never=True),
        tenant("slow-endpoint", 340, "concurrency", rate=4.0, arriving=5.0, oldest=95.0, pushed=True, never=True),
        tenant("half-failing", rate=10.0, arriving=10.0, failed=1.5, dead=0.2, error="KeyError: 'customer'"),
        tenant("expiring", 120, "handlers_busy", rate=9.0, arriving=11.0, oldest=59.0, expired=1.0),
        tenant("no-owner", 7, "no_owner", rate=0.0, oldest=12.0),
        tenant("no-handler", 31, "no_handler", rate=0.0, oldest=400.0),
        tenant("no-topic", 3, "paused", rate=0.0, qps=None, state=None),
        tenant("late", 5_000, "fairness", rate=6.0, arriving=7.0, oldest=900.0, never=True),
        tenant("catching-up", 400, "quota", rate=20.0, qps=20.0, arriving=4.0, oldest=20.0),
        tenant("leaving", 12, "quota", rate=2.0, qps=2.0, arriving=0.0, oldest=5.0, state="draining"),
    ]
    return overview(tenants, [node("w-0", [*range(128)])])


def why(project="acme", state="active", deleted=False):
    judged = tenant(project, 12_480, "quota", rate=99.6, state=state, deleted=deleted, never=True)
    return {
        "status": judged["status"], "also": judged["also"],
        "project": project, "env": "online", "at": now(), "state": state, "deleted": deleted,
        "backlog": 12480, "oldest_seconds": 124.2, "in_flight": 3, "waited_over_seconds": 29.0,
        "priorities": [
            part("high"),
            part("mid", 12480, 124.2, [reason("quota", 2, 12480)], [{"reason": "quota", "seconds": 58.0}]),
            part("low", delayed=3),
        ],
        "rates": {
            **flow(99.6), "quota": 100.0, "measured_seconds": 30.0,
            "sentence": "119.5/s arrive, 99.6/s are handled, a quota of 100/s; measured over 30.0 s",
        },
        "forecast": {
            "gone_in_seconds": None,
            "sentence": "never at this rate: 12,480 wait, 119.5/s arrive and 99.6/s are taken",
        },
        "nodes": [{"id": "w-0", "answered": True, "waiting": 12480}],
        "notes": ["node w-0: settles are 0.4 s behind"],
    }  # fmt: skip


def part(name, waiting=0, oldest=None, reasons=(), waited=(), delayed=0):
    return {
        "priority": name, "waiting": waiting, "oldest_seconds": oldest, "in_flight": 3 if waiting else 0,
        "delayed": delayed, "next_due": None, "reasons": [*reasons], "waited": [*waited],
        "waited_sentence": f"in the last 29s, {name} waited for quota all of the time (1 group)" if waited else "",
    }  # fmt: skip


def reason(name, groups, messages):
    return {"reason": name, "groups": groups, "messages": messages, "sentence": WHY[name]}


def dead_letter(seq, cause="max attempts", error="ValueError: no such customer", **fields):
    return {
        "seq": seq, "id": f"order-{seq}", "project": "acme", "reason": cause, "error": error, "attempts": 8,
        "origin": "LANES_online_3:17", "subject": "lanes.online.3.acme.0.mid",
        "queue": {"partition": 3, "group": 0, "priority": "mid"}, "key": "customer-7",
        "put_at": "2026-11-22T15:00:00.000Z", "died_at": "2026-11-22T15:58:12.000Z", "size": 412,
        "headers": {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
    } | fields  # fmt: skip
