"""Describes what needs attention, in sentences for a tenant's manager."""

from __future__ import annotations

from datetime import UTC
from shlex import quote
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from evenlane.spark.reports.targets import Targets

Row = dict[str, Any]
_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_ORDER = ("fault", "limit", "calm")

# Remedies by main wait reason.
_HELPS = {
    "concurrency": "It waits mostly because as many are in flight as its topic, or its endpoint, allows: a higher"
    " concurrency, or quicker handlers, would help.",
    "headroom": "It waits mostly for slots that are kept for lighter tenants: more nodes, or quicker handlers, would"
    " help.",
    "fairness": "It waits mostly because other tenants have their share of the handlers: more nodes would help.",
    "handlers_busy": "It waits mostly because all handlers are busy: more nodes, or quicker handlers, would help.",
    "quota": "It waits mostly for its quota.",
    "higher_priority": "It waits mostly for messages of a higher priority.",
    "ordered": "It waits mostly for earlier messages of the same key.",
    "endpoint": "It waits mostly because its endpoint, or its handler, asks for pauses: look there.",
    "paused": "It waits because the topic is paused: `{resume}` lets it go on.",
    "no_handler": "It waits mostly because no handler takes it: look at the application's routes.",
    "no_owner": "It waits mostly because no node owns its partitions: look at the nodes.",
}  # fmt: skip


def list_attention_items(tenants: Iterable[Row], targets: Targets, env: str) -> list[Row]:
    """Return items, worst first. `tenants` are those of the latest window. `tone` is fault (a target is missed), limit
    (one will be missed) or calm (worth knowing).
    """
    items = [item for tenant in tenants for item in _of(tenant, targets, env)]
    return sorted(items, key=lambda item: (_ORDER.index(item["tone"]), -item.pop("weight"), item["project"]))


def format_report_duration(seconds: float) -> str:
    """Format a duration: 0.4 s, 12 s, 3 m 20 s, 2 h 5 m, 3 d 4 h."""
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    whole = round(seconds)
    place, (unit, size) = next((place, each) for place, each in enumerate(_UNITS) if whole >= each[1])
    count, rest = divmod(whole, size)
    lower = _UNITS[place + 1][0] if place + 1 < len(_UNITS) else ""
    below = rest // _UNITS[place + 1][1] if lower else 0
    return f"{count:,} {unit} {below} {lower}" if below else f"{count:,} {unit}"


def moment(at: datetime) -> str:
    return f"{at.astimezone(UTC):%d %b, %H:%M} UTC"


def rate(qps: float) -> str:
    return f"{qps:,.0f}/s" if qps >= 100 else f"{qps:.3g}/s"


def _of(tenant: Mapping[str, Any], targets: Targets, env: str) -> Iterator[Row]:
    project = tenant["project"]
    help_ = _help(tenant, env)
    if tenant["late"]:
        worst = _priority(tenant, tenant["late_priority"])
        since = "" if tenant["late_since"] is None else f" since {moment(tenant['late_since'])}"
        waited = "" if worst["oldest_s"] is None else f", the oldest for {format_report_duration(worst['oldest_s'])}"
        text = (
            f"misses its target for {tenant['late_priority']}{since}: {_messages(worst['backlog'])} waiting{waited},"
            f" where {format_report_duration(worst['target_s'])} is allowed."
        )
        yield _item(project, "fault", tenant["late_by_s"], text, help_)
    elif tenant["miss_at"] is not None:
        when = moment(tenant["miss_at"])
        text = f"will miss its target for {tenant['miss_priority']} at {when} if it goes on like this."
        yield _item(project, "limit", tenant["backlog"], text, help_)
    elif tenant["empty_in_time"] is False and tenant["backlog"] > tenant["drain_rate"] * targets.empty_s:
        when = f"in {format_report_duration(tenant['empty_s'])}" if tenant["empty_s"] is not None else "never"
        text = (
            f"has {tenant['backlog']:,} waiting, gone {when} if it goes on like this;"
            f" the target is {format_report_duration(targets.empty_s)}."
        )
        yield _item(project, "limit", tenant["backlog"], text, help_)
    dead = tenant["dead"] or tenant["dead_letters"]
    if dead:
        top = tenant["dead_reasons"][:1]
        mostly = f", mostly: {top[0]['reason']}" if top else ""
        yield _item(project, "calm", dead, f"got {_letters(dead)}{mostly}.")


def _item(project: str, tone: str, weight: float | None, *sentences: str) -> Row:
    return {"project": project, "tone": tone, "weight": weight or 0, "sentence": " ".join(filter(None, sentences))}


def _help(tenant: Mapping[str, Any], env: str) -> str:
    if tenant["advice"] == "raise" and tenant["recommended_qps"] is not None:
        now = "" if tenant["qps"] is None else f" from {rate(tenant['qps'])}"
        return f"Raise its quota{now} to {rate(tenant['recommended_qps'])}."
    resume = f"evenlane topics resume {quote(tenant['project'])} --env {quote(env)}"
    return _HELPS.get(_cause(tenant), "").format(resume=resume)


def _cause(tenant: Mapping[str, Any]) -> str:
    """Return the main cause. Messages behind a higher priority wait for that priority's cause."""
    causes = [each["cause"] for each in tenant["causes"] or ()]
    return next((cause for cause in causes if cause != "higher_priority"), tenant["top_cause"] or "")


def _priority(tenant: Mapping[str, Any], name: str) -> Row:
    found: Row = next(each for each in tenant["priorities"] if each["priority"] == name)
    return found


def _messages(count: int) -> str:
    return "1 message is" if count == 1 else f"{count:,} messages are"


def _letters(count: int) -> str:
    return "1 dead letter" if count == 1 else f"{count:,} dead letters"
