"""The Tenant dashboard, of one project."""

from tests.dashboards.values import load
from tests.dashboards.values.load import AT_S, NODES, SPAN_S, Lane
from tests.dashboards.values.promtool import Vector
from tests.dashboards.values.vectors import (
    NOTHING,
    Scope,
    age,
    attempts,
    backlog,
    dwelt,
    labelled,
    least,
    measured,
    most,
    or_zero,
    outcomes,
    over_target,
    quotient,
    slots,
    total,
    waits,
)

_YEAR_S = 31_536_000  # what is later is never


def expected(chosen: Scope) -> dict[str, Vector]:
    return {**_now(chosen), **_waits(chosen), **_rates(chosen), **_times(chosen), **_failures(chosen)}


def _handled(lane: Lane) -> float:
    return lane.handled


def _arrived(lane: Lane) -> float:
    return lane.arrived


def _quota(lane: Lane) -> float:
    return lane.quota


def _empty_in(lane: Lane) -> float:
    if not backlog(lane):
        return 0.0
    shrinks = lane.taken - lane.arrived
    return min(_YEAR_S, lane.backlog(AT_S) / shrinks) if shrinks > 0 else _YEAR_S


def _shares(chosen: Scope) -> list[Lane]:
    return [*{lane.node: lane for lane in chosen.lanes if lane.fair is not None}.values()]


def _fair(lane: Lane) -> float:
    assert lane.fair is not None
    return lane.fair


def _now(chosen: Scope) -> dict[str, Vector]:
    lanes = chosen.lanes
    return {
        "stat / Backlog / A": or_zero(total(lanes, backlog)),
        "stat / Oldest / A": most(measured(lanes), age),
        "stat / Age of target / A": most(measured(chosen.everywhere), over_target),
        "stat / Gone in / A": most(measured(lanes), _empty_in),
        "stat / Arrives / A": or_zero(total(lanes, _arrived)),
        "stat / Handled / A": or_zero(total(lanes, _handled)),
        "stat / Quota used / A": or_zero(quotient(total(lanes, attempts), total(lanes, _quota))),
        "stat / Got of due / A": least(_shares(chosen), _fair),
    }


def _waits(chosen: Scope) -> dict[str, Vector]:
    place, lanes = "timeseries /", chosen.lanes
    heads = waits(lanes)
    present = labelled("reason", {next(iter(lane.reasons)): 0.0 for lane in lanes if lane.reasons})
    queues = {labels: float(sum(_waits_for(lane, labels[0][1]) for lane in lanes)) for labels in present}
    return {
        f"{place} Backlog by priority / A": total(lanes, backlog, "priority"),
        f"{place} Age of the oldest, and its target / A": most(measured(lanes), age, "priority"),
        f"{place} Age of the oldest, and its target / B": labelled("priority", load.TARGETS_S),
        f"{place} Forecast / A": most(measured(lanes), _empty_in, "priority"),
        f"{place} Messages that wait, by reason / A": waits(lanes, messages=True),
        f"{place} What it waits for, as shares of the time / A": {
            labels: value / sum(heads.values()) for labels, value in heads.items()
        },
        f"{place} Queues that wait now / A": queues,
        f"{place} Waits because of others / A": waits(lanes, of=load.COMPETES),
    }


def _waits_for(lane: Lane, reason: str) -> bool:
    return [reason] == [*lane.reasons][:1]


def _rates(chosen: Scope) -> dict[str, Vector]:
    place, lanes = "timeseries /", chosen.lanes
    return {
        f"{place} Offered, handled and quota / A": total(lanes, _arrived),
        f"{place} Offered, handled and quota / B": total(lanes, _handled),
        f"{place} Offered, handled and quota / C": total(lanes, _quota),
        f"{place} Handled by priority / A": total(lanes, _handled, "priority"),
        f"{place} Rates of the forecast / A": total(measured(lanes), _arrived),
        f"{place} Rates of the forecast / B": total(measured(lanes), lambda lane: lane.leaves),
        f"{place} Quota by node / A": total(lanes, _quota, "instance"),
    }


def _times(chosen: Scope) -> dict[str, Vector]:
    place, lanes = "timeseries /", chosen.lanes
    tried = total(lanes, attempts, "priority")
    shares = {f"online {NODES[lane.node].address} evenlane {lane.project}": _fair(lane) for lane in _shares(chosen)}
    return {
        f"{place} Dwell time, mean / A": quotient(total(lanes, dwelt, "priority"), tried),
        f"{place} Handling time, mean / A": quotient(total(lanes, slots, "priority"), tried),
        f"{place} Slots used / A": total(lanes, slots),
        f"{place} Slots used / B": total(lanes, slots),
        f"{place} Share got over share due / A": labelled("env instance job project", shares),
    }


def _failures(chosen: Scope) -> dict[str, Vector]:
    lost = ("dead", "expired", "dropped")
    return {
        "timeseries / How attempts and messages end / A": outcomes(chosen.lanes),
        "timeseries / Dead letters, expired and dropped / A": (
            outcomes(chosen.lanes, SPAN_S, lost) if chosen.lanes else NOTHING
        ),
    }
