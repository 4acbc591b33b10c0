"""The Delivery dashboard."""

import itertools

from tests.dashboards.values import load
from tests.dashboards.values.load import LES, RANGE_S, SPAN_S, Lane
from tests.dashboards.values.promtool import Vector
from tests.dashboards.values.vectors import (
    Scope,
    attempts,
    gauge,
    grown,
    labelled,
    named,
    outcomes,
    quantile,
    quotient,
    scalar,
    total,
)


def expected(chosen: Scope) -> dict[str, Vector]:
    return {**_now(chosen), **_table(chosen), **_rates(chosen), **_bars(chosen), **_times(chosen)}


def _failed(lane: Lane) -> float:
    return lane.retried + lane.dead


def _within(chosen: Scope, outcome: str, seconds: float, by: str = "") -> Vector:
    return total(chosen.lanes, lambda lane: getattr(lane, outcome) * seconds, by)


def _now(chosen: Scope) -> dict[str, Vector]:
    return {
        "stat / Success rate / A": quotient(_within(chosen, "handled", 1), total(chosen.lanes, attempts)),
        "stat / Retries / A": _within(chosen, "retried", 1),
        "stat / Dead letters / A": _within(chosen, "dead", RANGE_S),
        "stat / Expired / A": _within(chosen, "expired", RANGE_S),
        "stat / Dropped / A": _within(chosen, "dropped", RANGE_S),
        "stat / Maybe twice / A": scalar(grown(chosen, "duplicates", RANGE_S)),
        "stat / Missing / A": scalar(grown(chosen, "missing_sequences", RANGE_S)),
        "stat / Stray / A": scalar(grown(chosen, "stray_messages", RANGE_S)),
    }


def _table(chosen: Scope) -> dict[str, Vector]:
    place = "table / Projects by what fails /"
    counts = {
        f"{place} {ref}": _within(chosen, outcome, RANGE_S, "project")
        for ref, outcome in zip("ABCDE", load.OUTCOMES, strict=True)
    }
    return {
        **counts,
        f"{place} F": quotient(total(chosen.lanes, _failed, "project"), total(chosen.lanes, attempts, "project")),
        f"{place} G": _within(chosen, "missing", RANGE_S, "project"),
    }


def _rates(chosen: Scope) -> dict[str, Vector]:
    failing = [lane for lane in chosen.lanes if _failed(lane)]
    shares = quotient(total(chosen.lanes, _failed, "priority"), total(chosen.lanes, attempts, "priority"))
    return {
        "timeseries / How attempts and messages end / A": outcomes(chosen.lanes),
        "timeseries / Failed of attempts, by priority / A": shares,
        "timeseries / Retries, the most / A": total(failing, lambda lane: lane.retried, "project"),
        "timeseries / Dead letters, the most / A": total(failing, lambda lane: lane.dead, "project"),
    }


def _bars(chosen: Scope) -> dict[str, Vector]:
    place = "timeseries /"
    causes = {cause: grown(chosen, "duplicates", SPAN_S, cause) for cause in ("crash", "hung", "void")}
    return {
        f"{place} Dead letters over time / A": _within(chosen, "dead", SPAN_S, "priority"),
        f"{place} Expired over time / A": _within(chosen, "expired", SPAN_S, "priority"),
        f"{place} Dropped over time / A": _within(chosen, "dropped", SPAN_S, "priority"),
        f"{place} Maybe handled twice, by cause / A": labelled("cause", causes),
        f"{place} Missing and stray / A": scalar(grown(chosen, "missing_sequences", SPAN_S)),
        f"{place} Missing and stray / B": scalar(grown(chosen, "stray_messages", SPAN_S)),
        f"{place} Copies that wait to be stored / A": named(chosen, gauge(chosen, "pending_copies")),
    }


def _times(chosen: Scope) -> dict[str, Vector]:
    found: dict[str, Vector] = {}
    for title, name in (("Dwell time", "dwell"), ("Handling time", "handling")):
        counts = [each for (_, node), each in load.BUCKETS[name].items() if node in chosen.nodes]
        between = [sum(each) for each in zip(*counts, strict=True)]
        les = [*LES[name], "+Inf"]
        found[f"heatmap / {title} / A"] = labelled("le", dict(zip(les, itertools.accumulate(between), strict=True)))
        for ref, q in zip("ABC", (0.5, 0.9, 0.99), strict=True):
            found[f"timeseries / {title}, quantiles / {ref}"] = scalar(quantile(q, LES[name], between))
    return found
