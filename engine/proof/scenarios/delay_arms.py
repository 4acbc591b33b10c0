"""The arms of `delay`: which figures are read of each part of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.proof.scenarios import delay_figures as figures
from evenlane.engine.proof.scenarios.arrivals import SECOND
from evenlane.engine.proof.scenarios.delay_load import BURST, FREE

if TYPE_CHECKING:
    from evenlane.engine.proof.scenarios.delay_load import Size
    from evenlane.engine.proof.scenarios.delay_run import Outcome, Span
    from evenlane.engine.proof.scenarios.figures import Figures

_SETTLED_NS = SECOND  # after its beginning a burst's rate is that of the quota, without the topic's `burst`


def arms(outcome: Outcome, size: Size) -> dict[str, Figures]:
    return {
        "nothing waits": _part(outcome, outcome.alone)
        | {"free_over_quota": figures.most_in_1_s(outcome.records, FREE) / size.burst_qps},
        "a million wait": _part(outcome, outcome.steady) | _burst(outcome, size),
        "restart": _part(outcome, outcome.restart)
        | {"exit_s": outcome.exit_s, "start_to_own_s": outcome.restarted_s, "gap_s": _gap(outcome, outcome.restart)},
        "after restart": _part(outcome, outcome.after_restart),
        "hand-over": _part(outcome, outcome.handover) | {"gap_s": _gap(outcome, outcome.handover)},
        "after hand-over": _part(outcome, outcome.after_handover),
        "whole run": _whole(outcome),
    }


def _part(outcome: Outcome, span: Span) -> Figures:
    late = figures.lateness(outcome.records, *span, outcome.offset)
    waits = figures.waits(outcome.records, *span, outcome.offset)
    return {
        "seconds": (span.end - span.start) / SECOND,
        "came_due": len(late),
        **figures.spread(late, "lateness"),
        **figures.spread(waits, "wait"),
    }


def _burst(outcome: Outcome, size: Size) -> Figures:
    """Of the messages that came due at one instant, until the node was told to end."""
    rate = figures.rate(outcome.records, BURST, outcome.burst + _SETTLED_NS, outcome.steady.end)
    before = figures.waits(outcome.records, outcome.steady.start, outcome.burst, outcome.offset)
    after = figures.waits(outcome.records, outcome.burst, outcome.steady.end, outcome.offset)
    return {
        "burst_over_quota": rate / size.burst_qps,
        "burst_most_in_1_s": figures.most_in_1_s(outcome.records, BURST),
        **figures.spread(before, "wait_before_burst"),
        **figures.spread(after, "wait_in_burst"),
    }


def _gap(outcome: Outcome, span: Span) -> float | None:
    """The longest time within it in which no timed or paced message was started, s."""
    times = sorted(record.at for record in outcome.records if record.began and span.start <= record.at < span.end)
    gaps = [later - sooner for sooner, later in zip([span.start, *times], [*times, span.end], strict=True)]
    return max(gaps) / SECOND if times else None


def _whole(outcome: Outcome) -> Figures:
    handled, memory = figures.handled(outcome.records), outcome.memory_mb
    return {
        "early": figures.early(outcome.records, outcome.offset),
        "handled_twice": figures.again(outcome.records),
        "never_handled": sum(max(0, count - handled[kind]) for kind, count in outcome.expected.items()),
        **{f"put_{kind}": float(count) for kind, count in outcome.expected.items()},
        "put_a_million_s": outcome.fill_s,
        "memory_more_mb": memory["waiting"] - memory["before"],
        **{f"memory_{when.replace(' ', '_')}_mb": value for when, value in memory.items()},
    }
