"""Explains for which share of the recent time a priority of a project has waited, and for what. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.stats.forecast import format_spoken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from evenlane.engine.core.records.backlog_answer import NodeAnswer

_ALL = 0.985  # of the time; looks at queues are rounds, so the sum is hardly ever exact
_LEAST = 0.005  # of the waiting time, for a reason to be named beside others


def explain_waits(priority: str, groups: int | None, answers: Sequence[NodeAnswer]) -> str:
    """Return a sentence from the recent waits; empty if the priority hasn't waited. `groups` is the topic's number
    of groups, None if it is unknown. Nodes report seconds that the heads of queues waited, summed over queues, so a
    group that waits all the time adds the whole period.
    """
    heads, period_s = _mean_heads(priority, answers)
    total = sum(heads.values())
    if not total:
        return ""
    whole = max(groups or 1, total)
    lately = f"in the last {format_spoken(period_s)}, {priority} waited"
    if groups == 1 or (groups and total >= _ALL * groups):
        counted = "1 group" if groups == 1 else f"{groups:,} of {groups:,} groups"
        return f"{lately} {_of_time(heads, 1 / whole)} ({counted})"
    where = f"{_count(total)} of {groups:,} groups" if groups and total < groups else f"{_count(total)} groups"
    reasons = [reason for reason, _ in _ranked(heads)]
    if len(reasons) == 1:
        return f"{lately} for {reasons[0]} in {where} at a time, on average"
    shares = ", ".join(f"{_percent(mean / total)} of it for {reason}" for reason, mean in _ranked(heads))
    return f"{lately} in {where} at a time, on average: {shares}"


def _mean_heads(priority: str, answers: Sequence[NodeAnswer]) -> tuple[dict[str, float], float]:
    """Return how many heads of queues waited at a time, on average, by reason; and the longest period (s)."""
    heads: dict[str, float] = {}
    period_s = 0.0
    for answer in answers:
        part = answer.parts.get(priority)
        if part is None or not part.waited or answer.waited_s <= 0:
            continue
        period_s = max(period_s, answer.waited_s)
        for reason, seconds in part.waited.items():
            heads[reason] = heads.get(reason, 0.0) + seconds / answer.waited_s
    return heads, period_s


def _ranked(heads: Mapping[str, float]) -> list[tuple[str, float]]:
    """Return the reasons, the most frequent first, without negligible ones."""
    least = _LEAST * sum(heads.values())
    return sorted(((r, mean) for r, mean in heads.items() if mean >= least), key=lambda each: (-each[1], each[0]))


def _of_time(heads: Mapping[str, float], scale: float) -> str:
    [(first, share), *others] = _ranked(heads)
    spoken = "all" if share * scale >= _ALL else _percent(share * scale)
    further = "".join(f", and {_percent(share * scale)} for {reason}" for reason, share in others)
    return f"for {first} {spoken} of the time{further}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= _LEAST else "less than 1%"


def _count(mean: float) -> str:
    return "less than 0.1" if mean < 0.1 else f"{mean:,.0f}" if mean >= 10 else f"{mean:.1f}".removesuffix(".0")
