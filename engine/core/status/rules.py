"""The rules by which a project has a status: one function for each, with its words. Pure.

A rule returns None if its status doesn't apply. `judge` (engine/core/status/judge.py) chooses between those that do.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from evenlane.engine.core.stats.forecast import figure, format_spoken
from evenlane.engine.core.stats.wait_targets import EMPTY_S
from evenlane.engine.core.status.remedies import remedy_of, wait_words
from evenlane.engine.core.status.status import Status
from evenlane.engine.core.status.words import format_part, format_rate, format_waiting, main_reason, moment
from evenlane.engine.errors import hint

if TYPE_CHECKING:
    from evenlane.engine.core.status.facts import StatusFacts

_MOST_FAIL = 0.5  # from this share of failed attempts on, most of the project's work is in vain
_SOME_FAIL = 0.01  # a smaller share is a few among many
_OVER = 1.05  # times the quota: less may be noise
_SLOW_S = 10.0  # an endpoint that is busy for less isn't slow


def no_owner(facts: StatusFacts) -> Status | None:
    if not facts.unserved and "no_owner" not in facts.reasons:
        return None
    sentence = "some of its partitions have no owner: no message there is handled"
    return Status("no_owner", "critical", "no owner", sentence, remedy_of("no_owner", facts))


def no_topic(facts: StatusFacts) -> Status | None:
    if facts.state is not None or not (facts.backlog or facts.rates.arriving):
        return None
    sentence = f"it has no topic, so none of its messages is handled: {format_waiting(facts.backlog)}"
    creates = f"{hint(f'topics set {facts.project} --qps 100', facts.env)} creates one"
    restores = f"{hint('topics apply FILE', facts.env)} restores it, if etcd has lost it"
    return Status("no_topic", "critical", "no topic", sentence, restores if facts.is_lost else creates)


def no_handler(facts: StatusFacts) -> Status | None:
    if "no_handler" not in facts.reasons:
        return None
    sentence = f"no handler takes its messages: {format_waiting(facts.backlog)}"
    return Status("no_handler", "critical", "no handler", sentence, remedy_of("no_handler", facts))


def stuck(facts: StatusFacts) -> Status | None:
    if facts.state not in {"active", "draining"} or "paused" not in facts.reasons:
        return None
    sentence = f"its retries and dead letters can't be stored, so nothing is started: {format_waiting(facts.backlog)}"
    return Status("stuck", "critical", "stuck", sentence, "look at NATS: the nodes' logs have the reason")


def failing(facts: StatusFacts) -> Status | None:
    rates = facts.rates
    attempts = rates.handled + rates.failed
    if rates.failed <= 0 or rates.failed < _SOME_FAIL * attempts:
        return None
    share = rates.failed / attempts
    severity = "critical" if share >= _MOST_FAIL else "warning"
    error = f": {facts.failure.error}" if facts.failure.error else ""
    if rates.handled <= 0:
        since = "" if facts.failure.since is None else f" since {moment(facts.failure.since)}"
        sentence = f"everything fails{since}{error}"
    else:
        last = f", the last one with {facts.failure.error}" if error else ""
        of_them = f"{format_rate(rates.failed)} of {format_rate(attempts)}"
        sentence = f"{format_part(share)} of its attempts fail, {of_them}{last}"
    remedy = (
        "mend its handler, or what it calls;"
        f" {hint(f'dlq list {facts.project}', facts.env, facts.subscription)} shows dead letters,"
        f" {_hold_back(facts)}"
    )
    return Status("failing", severity, f"failing {format_part(share)}", sentence, remedy)


def _hold_back(facts: StatusFacts) -> str:
    pauses = hint(f"topics pause {facts.project}", facts.env)
    if facts.subscription:
        return f"without nodes of {facts.subscription!r} the rest waits meanwhile ({pauses} pauses all subscriptions)"
    return f"{pauses} lets the rest wait meanwhile"


def expiring(facts: StatusFacts) -> Status | None:
    rates = facts.rates
    if rates.expired <= 0 or rates.expired < _SOME_FAIL * rates.taken:
        return None
    share = rates.expired / rates.taken
    sentence = f"{format_rate(rates.expired)} expire before a handler begins, {format_part(share)} of what leaves"
    longer = f"{hint(f'topics set {facts.project} --ttl DURATION', facts.env)} lets them wait for longer"
    reason = main_reason(facts.reasons)
    remedy = "; ".join(filter(None, [remedy_of(reason, facts) if reason else "", longer]))
    return Status("expiring", "warning", f"expiring {format_part(share)}", sentence, remedy)


def deleted(facts: StatusFacts) -> Status | None:
    if not facts.deleted or not facts.backlog or facts.state == "draining":
        return None
    remedy = (
        f"{hint(f'topics drain {facts.project}', facts.env)} has them handled,"
        f" {hint(f'backlog purge {facts.project}', facts.env, facts.subscription)} drops them"
    )
    sentence = f"its topic was deleted while messages waited: {format_waiting(facts.backlog)}"
    return Status("deleted", "warning", "deleted", sentence, remedy)


def endpoint(facts: StatusFacts) -> Status | None:
    reason = main_reason(facts.reasons)
    is_slow = facts.is_pushed and reason == "concurrency" and facts.oldest_s >= _SLOW_S
    if not is_slow and not (reason == "endpoint" and not facts.is_young):
        return None
    what = "its endpoint is slow" if is_slow else wait_words("endpoint")
    label = "slow endpoint" if is_slow else "endpoint pauses"
    sentence = f"{what}: {format_waiting(facts.backlog, facts.oldest_s)}"
    return Status("endpoint", "warning", label, sentence, remedy_of("endpoint", facts))


def over_quota(facts: StatusFacts) -> Status | None:
    qps, arriving = facts.qps, facts.rates.arriving
    if facts.state != "active" or not qps or main_reason(facts.reasons) != "quota" or arriving <= _OVER * qps:
        return None
    times = figure(round(arriving / qps, 1))
    sentence = (
        f"it offers {times} x its quota: {format_rate(arriving)} arrive, {format_rate(qps)} are allowed;"
        f" {format_waiting(facts.backlog, facts.oldest_s)}"
    )
    need = _clearing_rate(arriving + facts.backlog / EMPTY_S)
    slots = "" if facts.slots is None else f" and {format_part(facts.slots * need / qps)} of the slots"
    remedy = (
        f"its producer slows down, or a quota of {format_rate(need)} clears it in {format_spoken(EMPTY_S)},"
        f" which is {figure(round(need / qps, 1))} x the quota{slots}"
    )
    return Status("over_quota", "warning", f"over quota {times} x", sentence, remedy)


def late(facts: StatusFacts) -> Status | None:
    worst = facts.latest
    if worst is None or worst.oldest_s is None:
        return None
    since = "" if facts.late_since is None else f" since {moment(facts.late_since)}"
    reason = main_reason(facts.reasons)
    why = "" if reason is None else f"; {wait_words(reason)}"
    sentence = (
        f"{worst.priority} is late{since}: {format_waiting(worst.messages, worst.oldest_s)},"
        f" and {format_spoken(worst.target_s)} is the target{why}"
    )
    return Status("late", "warning", "late", sentence, remedy_of(reason, facts) if reason else "")


def paused(facts: StatusFacts) -> Status | None:
    if facts.state != "paused" or facts.deleted:
        return None
    sentence = f"paused{facts.stopped_by}: {format_waiting(facts.backlog, facts.oldest_s)}"
    return Status("paused", "info", "paused", sentence, remedy_of("paused", facts))


def draining(facts: StatusFacts) -> Status | None:
    if facts.state != "draining":
        return None
    sentence = f"draining: it takes no new messages; {format_waiting(facts.backlog, facts.oldest_s)}"
    return Status("draining", "info", "draining", sentence)


def waiting(facts: StatusFacts) -> Status | None:
    reason = main_reason(facts.reasons)
    if reason is None or facts.is_young:
        return None
    gone = ", and more arrive than leave" if facts.never else ""
    if facts.gone_s is not None and not facts.never:
        gone = f", gone in {format_spoken(facts.gone_s)}"
    sentence = f"{format_waiting(facts.backlog, facts.oldest_s)}{gone}; {wait_words(reason)}"
    label = f"waits: {reason.replace('_', ' ')}"
    return Status("waiting", "info", label, sentence, remedy_of(reason, facts) if facts.never else "")


def _clearing_rate(rate: float) -> float:
    """Round up to two significant digits."""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 1)
    return round(math.ceil(rate / unit - 1e-9) * unit, 6)
