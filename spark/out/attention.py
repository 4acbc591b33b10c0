"""Describes what needs attention, in sentences for a tenant's manager: its statuses in the latest window, as on every
surface (engine/core/status), and forecasts.
"""

from __future__ import annotations

import re
from datetime import UTC
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from evenlane.engine.core.records.backlog_answer import Rates
from evenlane.engine.core.stats.forecast import UNKNOWN, format_spoken
from evenlane.engine.core.status.facts import Failure, StatusFacts, Waiting
from evenlane.engine.core.status.judge import judge
from evenlane.engine.core.status.status import SEVERITIES
from evenlane.engine.core.status.words import format_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from evenlane.spark.reports.targets import Targets

Row = dict[str, Any]
_QUIET = frozenset({"ok", "waiting", "draining"})  # statuses that need nobody's attention
_STILL = frozenset({"paused"})
_TONES = {"critical": "fault", "warning": "limit", "info": "calm"}
_SECOND = 1_000_000_000
_ATTEMPTS = re.compile(r"^failed (\d+ times|once, and may not be retried): ")
_EXPIRED = "expired"  # the reason of a message that no handler began

RUNBOOKS = MappingProxyType({
    "no_owner": "evenlanepartitionunowned", "no_topic": "evenlanenotopic", "no_handler": "evenlanenohandler",
    "stuck": "evenlanecopiesstuck", "failing": "evenlanemostfail", "expiring": "evenlanemessagesexpire",
    "endpoint": "evenlaneendpointpauses", "over_quota": "evenlaneoverquota", "late": "evenlanebacklogold",
    "paused": "evenlanepaused", "will_miss": "evenlanebacklogwontempty", "dead_letters": "evenlanedeadlettersrising",
})  # fmt: skip
"""The section of docs/how-to/runbooks.md for each status."""


class KnownTopics(NamedTuple):
    """What etcd says of topics, by project: complete specs, None if unknown; who paused those that are paused; and the
    states of deleted topics that messages keep, which have no spec.
    """

    specs: Mapping[str, Mapping[str, Any]] | None = None
    paused_by: Mapping[str, str] = {}
    deleted: Mapping[str, str] = {}


UNKNOWN_TOPICS = KnownTopics()


def list_attention_items(
    tenants: Iterable[Row], targets: Targets, env: str, known: KnownTopics = UNKNOWN_TOPICS, subscription: str = ""
) -> list[Row]:
    """Return items, most urgent first. `tenants` are those of the latest window, with `failing_since` (None: unknown)
    if it has been computed. `severity` and `status` are those of engine/core/status; a forecast has the status
    `will_miss`. `tone` is the colour, `runbook` the section of the runbooks.
    """
    items = [
        {**item, "runbook": RUNBOOKS.get(item["status"])}
        for tenant in tenants
        for item in _list_items(tenant, targets, _facts(tenant, env, known, subscription), known)
    ]
    return sorted(items, key=lambda item: (item.pop("urgency"), -item.pop("weight"), item["project"]))


def moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%d %b, %H:%M} UTC"


def _list_items(tenant: Row, targets: Targets, facts: StatusFacts, known: KnownTopics) -> Iterator[Row]:
    statuses = [each for each in judge(facts) if each.name not in _QUIET]
    may_raise = tenant["advice"] == "raise" and tenant["recommended_qps"] is not None
    for each in statuses:
        remedy = each.remedy
        if each.name == "late" and may_raise and tenant["project"] not in known.deleted:
            remedy = f"a quota of {format_rate(tenant['recommended_qps'])} instead of {format_rate(tenant['qps'])}"
        tone = "still" if each.name in _STILL else _TONES[each.severity]
        yield {
            "project": tenant["project"], "status": each.name, "severity": each.severity, "tone": tone,
            "label": each.label, "sentence": each.sentence, "remedy": remedy,
            "urgency": each.urgency, "weight": tenant["backlog"],
        }  # fmt: skip
    if not statuses and (sentence := _forecast(tenant, targets)):
        yield {
            "project": tenant["project"], "status": "will_miss", "severity": "warning", "tone": "limit",
            "label": "will be late", "sentence": sentence, "remedy": "", "weight": tenant["backlog"],
            "urgency": SEVERITIES.index("info") * 100,  # after all that is so already
        }  # fmt: skip
    dead = tenant["dead"] or tenant["dead_letters"]
    if dead and not any(each.name == "failing" for each in statuses):
        yield {
            "project": tenant["project"], "status": "dead_letters", "severity": "info", "tone": "calm",
            "label": "dead letters", "sentence": f"got {_letters(dead)}{_name_mostly(tenant, dead)}", "remedy": "",
            "weight": dead, "urgency": SEVERITIES.index("info") * 100 + 1,
        }  # fmt: skip


def _facts(tenant: Mapping[str, Any], env: str, known: KnownTopics, subscription: str) -> StatusFacts:
    project = tenant["project"]
    cause = _cause(tenant)
    covered = tenant["covered_s"] or 0.0
    rates = UNKNOWN
    if covered:
        rates = Rates(
            tenant["arrival_rate"] or 0.0, tenant["handled_rate"] or 0.0, tenant["failed_rate"] or 0.0, covered,
            tenant["dead"] / covered, tenant["expired"] / covered, tenant["dropped"] / covered,
        )  # fmt: skip
    topic = (known.specs or {}).get(project, {})
    return StatusFacts(
        project=project,
        env=env,
        subscription=subscription,
        state=known.deleted.get(project) or _state(tenant, topic, cause),
        qps=tenant["qps"],
        waiting=tuple(
            Waiting(each["priority"], each["backlog"], each["oldest_s"], each["target_s"])
            for each in tenant["priorities"] or ()
        ),
        rates=rates,
        reasons={cause: 1} if cause and tenant["backlog"] else {},
        deleted=project in known.deleted,
        is_pushed=topic.get("push") is not None,
        failure=Failure(_last_error(tenant), _unix_ns(tenant.get("failing_since"))),
        gone_s=tenant["empty_s"],
        never=tenant["empty_word"] == "never",
        stopped_by=known.paused_by.get(project, ""),
        late_since=_unix_ns(tenant["late_since"]),
    )


def _state(tenant: Mapping[str, Any], topic: Mapping[str, Any], cause: str) -> str:
    """Return the topic's state. Records don't say it: without a spec, a pause is what all waited for."""
    idle = not (tenant["handled"] or tenant["retried"] or tenant["dead"])
    state: str = topic.get("state", "paused" if not topic and cause == "paused" and idle else "active")
    return state


def _forecast(tenant: Mapping[str, Any], targets: Targets) -> str:
    if tenant["miss_at"] is not None:
        when = moment(tenant["miss_at"])
        return f"will miss its target for {tenant['miss_priority']} at {when} if it goes on like this"
    if tenant["empty_in_time"] is False and tenant["backlog"] > tenant["drain_rate"] * targets.empty_s:
        gone = f"in {format_spoken(tenant['empty_s'])}" if tenant["empty_s"] is not None else "never"
        return (
            f"has {tenant['backlog']:,} waiting, gone {gone} if it goes on like this; the target is"
            f" {format_spoken(targets.empty_s)}"
        )
    return ""


def _last_error(tenant: Mapping[str, Any]) -> str:
    """Return the most frequent error of the window's dead letters, as other surfaces name it: records don't have
    errors.
    """
    reasons = (str(each["reason"]) for each in tenant["dead_reasons"])
    return next((_ATTEMPTS.sub("", reason) for reason in reasons if reason != _EXPIRED), "")


def _name_mostly(tenant: Mapping[str, Any], dead: int) -> str:
    """Name the most frequent reason if it is that of more than half of them."""
    top = tenant["dead_reasons"][:1]
    return f", mostly: {top[0]['reason']}" if top and top[0]["count"] > dead / 2 else ""


def _cause(tenant: Mapping[str, Any]) -> str:
    """Return the main cause. Messages behind a higher priority wait for that priority's cause."""
    causes = [each["cause"] for each in tenant["causes"] or ()]
    return next((cause for cause in causes if cause != "higher_priority"), tenant["top_cause"] or "")


def _unix_ns(at: datetime | None) -> int | None:
    return None if at is None else round(at.timestamp()) * _SECOND


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"
