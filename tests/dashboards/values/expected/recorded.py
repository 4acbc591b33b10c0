"""Recording rules, over all nodes."""

import math

from tests.dashboards.values import load
from tests.dashboards.values.load import AT_S, LANES, NODES, RANGE_S, Lane
from tests.dashboards.values.promtool import Vector
from tests.dashboards.values.vectors import age, labelled, measured, most, over_target, quotient, scalar, total

_LABELLED = [lane for lane in LANES if lane.project != "other"]


def _by_project() -> dict[str, list[Lane]]:
    found: dict[str, list[Lane]] = {}
    for lane in LANES:
        found.setdefault(lane.project, []).append(lane)
    return found


def _online(vector: Vector) -> Vector:
    return {tuple(sorted((*labels, ("env", "online")))): value for labels, value in vector.items()}


def offered() -> Vector:
    offers = total(measured(_LABELLED), lambda lane: lane.arrived, "project")
    return quotient(offers, total(_LABELLED, lambda lane: lane.quota, "project"))


def own_limit() -> dict[str, float]:
    """Queues that wait for a limit of their own: hot has one on each node, and waits for its quota in both."""
    return {"hot": 2, "paused": 1, "expiring": 1, "purged": 1, "draining": 1}


def _failed_share() -> dict[str, float]:
    """Failed attempts over all, of projects with more than ten of them in ten minutes."""
    shares = {}
    for project, lanes in _by_project().items():
        failed = sum(lane.retried + lane.dead for lane in lanes)
        if failed * RANGE_S > 10:
            shares[f"online {project}"] = failed / (failed + sum(lane.handled for lane in lanes))
    return shares


def _empty_in(project: str) -> float:
    """draining loses 10 of its 15,000 messages per second; the others have as many arrivals, or more, or no backlog."""
    return math.inf if project in ("hot", "paused", "expiring", "gold", "bulk") else 0.0


def expected() -> dict[str, Vector]:
    by = "project priority"
    ended = {
        f"online {project} {outcome}": RANGE_S * sum(getattr(lane, outcome) for lane in lanes)
        for project, lanes in _by_project().items()
        for outcome in load.OUTCOMES
    }
    empty = {f"online {lane.project} {lane.priority}": _empty_in(lane.project) for lane in measured(_LABELLED)}
    empty["online draining low"] = (15_000 - 10 * AT_S) / 10
    slots = {name: sum(node.gauges[name] for node in NODES.values()) for name in ("slots", "slots_busy")}
    target = "priority:evenlane_oldest_message_age_target:seconds"
    return {
        "env_project_priority:evenlane_oldest_message_age_seconds:max": _online(most(measured(LANES), age, by)),
        "env_project_priority:evenlane_oldest_message_age:over_target": _online(most(measured(LANES), over_target, by)),
        "env_project_priority:evenlane_time_to_empty_seconds:max": labelled("env project priority", empty),
        "env_project_priority:evenlane_stopped_queues:sum": labelled(
            "env project priority", {"online paused high": 1, "online purged low": 1}
        ),
        "env_project:evenlane_offered_over_quota:ratio": _online(offered()),
        "env_project:evenlane_own_limit_queues:sum": _online(labelled("project", own_limit())),
        "env_project_outcome:evenlane_outcomes:increase10m": labelled("env project outcome", ended),
        "env_project:evenlane_failed_attempts:ratio10m": labelled("env project", _failed_share()),
        "env_job:evenlane_partitions_unowned:count": labelled("env job", {"online evenlane": 1}),
        "env:evenlane_slots_busy:ratio": labelled("env", {"online": slots["slots_busy"] / slots["slots"]}),
        **{f"{target} {priority}": scalar(seconds) for priority, seconds in load.TARGETS_S.items()},
        f"{target} -": scalar(600),
        "evenlane:time_to_empty_target:seconds": scalar(3_600),
    }
