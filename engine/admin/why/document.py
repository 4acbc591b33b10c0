"""Builds the answer to why a project's messages wait, from nodes' answers, for people and programs (X8). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evenlane.engine.admin.why.recent_waits import explain_waits
from evenlane.engine.admin.why.status import judge_project
from evenlane.engine.base.durations import format_instant
from evenlane.engine.base.rounding import to_thousandths
from evenlane.engine.core.stats.backlog_tally import count, merge_counts, rank_reasons
from evenlane.engine.core.stats.backlog_trend import is_stuck
from evenlane.engine.core.stats.forecast import (
    MEASURED_AGAIN,
    UNKNOWN,
    ForecastInput,
    QuotaForecast,
    add_rates,
    clears,
    explain_roughness,
    figure,
    predict_end,
    predict_resumption,
)
from evenlane.engine.core.wire.reason_codes import INDIRECT
from evenlane.engine.errors import hint
from evenlane.engine.telemetry.wait_reasons import ReasonContext, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.engine.admin.why.question import Question
    from evenlane.engine.core.records.backlog_answer import NodeAnswer, QueueCount, Rates

_SECOND = 1_000_000_000


def document(question: Question, answers: Sequence[NodeAnswer]) -> dict[str, Any]:
    """Build the answer in JSON types. Totals and forecast cover the project, whichever priority is shown."""
    wholes: dict[str, QueueCount] = {
        name: merge_counts(answer.parts[name] for answer in answers if name in answer.parts)
        for name in question.priorities
    }
    missing = _explain_missing(question)
    load = _load(question, answers, wholes, UNKNOWN if missing else _sum_rates(answers))
    if question.unserved:
        for part in wholes.values():
            count(part, "no_owner", question.unserved, None)
    shown = [question.only] if question.only else question.priorities
    nodes = sum(answer.queues > 0 for answer in answers)
    unknown = question.lost and any(answer.queues and answer.lost is None for answer in answers)
    forecast = _forecast(question, load, missing, _over_a_minute(load, answers))
    status, *also = (
        each.describe() for each in judge_project(question, answers, wholes, load, forecast["gone_in_seconds"])
    )
    about = ReasonContext(
        question.project, question.topic, question.deleted, nodes, _read_allowance(answers), unknown,
        question.subscription,
    )  # fmt: skip
    return {
        "project": question.project,
        "env": question.env,
        "subscription": question.subscription or None,
        "at": format_instant(question.at),
        "state": None if question.topic is None else question.topic.state,
        "deleted": question.deleted,
        "status": status,
        "also": also,
        "backlog": load.waiting,
        "oldest_seconds": to_thousandths(merge_counts(wholes.values()).oldest_s),
        "in_flight": sum(part.in_flight for part in wholes.values()),
        "waited_over_seconds": to_thousandths(max((answer.waited_s for answer in answers), default=0.0)),
        "priorities": [_priority(question, name, wholes[name], about, answers) for name in shown],
        "rates": _rates(question, load, missing),
        "forecast": forecast,
        "nodes": _nodes(question, answers),
        "notes": _notes(question, answers),
    }


def _sum_rates(answers: Sequence[NodeAnswer]) -> Rates:
    """Add the rates of all nodes. A node that has none of the project's queues counts only if something moves there, or
    its rates are unknown: its measurement may have just begun.
    """
    counted = [each.rates for each in answers if each.queues or each.rates.moves or not each.rates.is_known]
    return add_rates(counted or [each.rates for each in answers])


def _load(
    question: Question, answers: Sequence[NodeAnswer], wholes: Mapping[str, QueueCount], rates: Rates
) -> ForecastInput:
    everything = merge_counts(wholes.values()).reasons
    for indirect in INDIRECT:
        everything.pop(indirect, None)
    oldest_s = merge_counts(wholes.values()).oldest_s
    grows = any(answer.grows for answer in answers) or (rates.is_known and is_stuck(rates.taken, oldest_s))
    return ForecastInput(
        waiting=sum(part.waiting for part in wholes.values()),
        deepest=max((answer.deepest for answer in answers), default=0),
        rates=rates,
        topic=question.topic,
        reason=next((reason for reason, _ in rank_reasons(everything)), None),
        max_group_qps=question.max_group_qps,
        grows=grows,
    )


def _priority(
    question: Question, name: str, part: QueueCount, about: ReasonContext, answers: Sequence[NodeAnswer]
) -> dict[str, Any]:
    due = None if part.next_due_s is None else format_instant(question.at + round(part.next_due_s * _SECOND))
    return {
        "priority": name,
        "waiting": part.waiting,
        "oldest_seconds": to_thousandths(part.oldest_s),
        "in_flight": part.in_flight,
        "delayed": part.delayed,
        "next_due": due,
        "reasons": [
            {
                "reason": reason,
                "groups": found.groups,
                "messages": found.messages,
                "sentence": sentence(reason, part, about),
            }
            for reason, found in rank_reasons(part.reasons)
        ],
        "waited": _list_waits(part),
        "waited_sentence": explain_waits(name, None if question.topic is None else question.topic.groups, answers),
    }


def _list_waits(part: QueueCount) -> list[dict[str, Any]]:
    longest_first = sorted(part.waited.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": reason, "seconds": to_thousandths(seconds)} for reason, seconds in longest_first]


def _rates(question: Question, load: ForecastInput, missing: str) -> dict[str, Any]:
    rates, quota = load.rates, None if load.topic is None else load.topic.qps
    none = "its quota isn't known" if question.lost else "no quota"
    limit = none if quota is None else f"a quota of {figure(quota)}/s"
    names = ("arriving", "leaving", "handled", "failed", "dead", "expired")
    reported = {name: to_thousandths(getattr(rates, name)) if rates.is_known else None for name in names}
    seconds = to_thousandths(rates.seconds) if rates.is_known else None
    return {**reported, "quota": quota, "measured_seconds": seconds, "sentence": _flow(rates, limit, missing)}


def _flow(rates: Rates, limit: str, missing: str) -> str:
    if not rates.is_known:
        return f"not known{f', as {missing}' if missing else f' yet: {MEASURED_AGAIN}'}; {limit}"
    arriving, handled = figure(round(rates.arriving, 2)), figure(round(rates.handled, 2))
    parts = [f"{arriving}/s arrive", f"{handled}/s are handled"]
    if rates.failed:
        parts.append(f"{figure(round(rates.failed, 2))}/s fail")
    if rates.expired:
        parts.append(f"{figure(round(rates.expired, 2))}/s expire")
    return f"{', '.join(parts)}, {limit}; measured over {rates.seconds:.1f} s"


def _over_a_minute(load: ForecastInput, answers: Sequence[NodeAnswer]) -> ForecastInput:
    """Return the input with rates over a longer time, if all nodes with queues of the project know them."""
    known = [answer.long_rates for answer in answers if answer.queues and answer.long_rates is not None]
    rates = add_rates(known)
    is_whole = len(known) == sum(answer.queues > 0 for answer in answers)
    return load._replace(rates=rates) if is_whole and 0 < load.rates.seconds < rates.seconds else load


def _forecast(question: Question, load: ForecastInput, missing: str, steady: ForecastInput) -> dict[str, Any]:
    """Return the forecast. The quota to clear the backlog rests on the rates of `steady`."""
    seconds, gone_sentence = predict_end(load)
    if missing:
        seconds, gone_sentence = None, f"not known: at least {load.waiting:,} wait, and {missing}"
    reported: dict[str, Any] = {"gone_in_seconds": to_thousandths(seconds), "sentence": gone_sentence}
    if (resumed := predict_resumption(load, question.deleted)) is not None:
        reported["resumed_gone_in_seconds"] = to_thousandths(resumed.seconds)
        reported["resumed_sentence"] = resumed.sentence
    if question.within is not None:
        quota = QuotaForecast(None, "", f"not known, as {missing}") if missing else clears(steady, question.within)
        where = "" if question.env == "online" else f" --env {question.env}"
        reported["within_seconds"] = question.within
        reported["qps_to_clear_within"] = quota.qps
        rough = explain_roughness(steady.rates) if quota.qps is not None else ""
        reported["within_sentence"] = f"{quota.sentence}{rough}"
        sets = quota.flags and not question.lost  # a lost topic would be recreated without its other fields
        reported["command"] = f"evenlane topics set {question.project} {quota.flags}{where}" if sets else None
    return reported


def _explain_missing(question: Question) -> str:
    """Return which part of the answer is missing, empty if none is."""
    if not question.silent and not question.unserved:
        return ""
    where = f"on {', '.join(question.silent)}" if question.silent else "in partitions that no node serves"
    return f"the backlog {where} isn't reported"


def _read_allowance(answers: Sequence[NodeAnswer]) -> float | None:
    """Return the rate (messages per second) that all nodes with a backlog may use together; None if it is unknown for
    one of them, or no node has a backlog.
    """
    known = [answer.may_use for answer in answers if any(part.waiting for part in answer.parts.values())]
    reported = [each for each in known if each is not None]
    return sum(reported) if reported and len(reported) == len(known) else None


def _nodes(question: Question, answers: Sequence[NodeAnswer]) -> list[dict[str, Any]]:
    reported = [
        {"id": answer.node, "answered": True, "waiting": sum(part.waiting for part in answer.parts.values())}
        for answer in answers
    ]
    reported += [{"id": node, "answered": False, "waiting": None} for node in question.silent]
    return sorted(reported, key=lambda node: str(node["id"]))


def _notes(question: Question, answers: Sequence[NodeAnswer]) -> list[str]:
    notes = []
    if question.silent:
        notes.append(f"no answer came from {', '.join(question.silent)}: the backlog there is missing here")
    notes += question.troubles
    for answer in answers:
        notes += [f"node {answer.node}: {note}" for note in answer.notes]
    if question.lost:
        notes.append(_explain_lost(question, [answer.node for answer in answers if answer.lost is not None]))
    elif question.topic is None:
        makes = hint(f"topics set {question.project} --qps 100", question.env)
        notes.append(f"the project has no topic: {makes} creates one")
    return notes


def _explain_lost(question: Question, nodes: Sequence[str]) -> str:
    """Return the note on a lost topic. `topics set` would recreate the topic without its other fields."""
    back = f"{hint('topics apply FILE', question.env)} restores it from the last file of `evenlane topics export`"
    if nodes:
        return f"etcd has lost the project's topic, which stays in effect on {', '.join(nodes)}: {back}"
    return f"etcd has no topic for the project, and has lost topics: if the project's is one of them, {back}"
