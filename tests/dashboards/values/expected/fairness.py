"""The Fairness dashboard."""

from tests.dashboards.values.expected import recorded
from tests.dashboards.values.load import Lane
from tests.dashboards.values.promtool import Vector
from tests.dashboards.values.vectors import (
    Scope,
    attempts,
    backlog,
    dwelt,
    least,
    most,
    or_zero,
    quotient,
    scalar,
    slots,
    total,
    waiting,
    waiting_for_others,
)


def expected(chosen: Scope) -> dict[str, Vector]:
    return {**_now(chosen), **_table(chosen), **_shares(chosen), **_neighbours(chosen)}


def _busy(chosen: Scope) -> list[Lane]:
    """One lane of each project and node with a share."""
    return [*{(lane.project, lane.node): lane for lane in chosen.lanes if lane.fair is not None}.values()]


def _fair(lane: Lane) -> float:
    assert lane.fair is not None
    return lane.fair


def _mean_shares(chosen: Scope) -> list[float]:
    """The mean share of each project over its nodes."""
    shares = total(_busy(chosen), _fair, "project")
    return [*quotient(shares, total(_busy(chosen), lambda _: 1.0, "project")).values()]


def _dwell(chosen: Scope, *, within: bool, by: str = "") -> Vector:
    """The mean dwell time of projects that keep within their quota, or of the others."""
    lanes = [lane for lane in chosen.lanes if within != (lane.project in recorded.own_limit())]
    return quotient(total(lanes, dwelt, by), total(lanes, attempts, by))


def _now(chosen: Scope) -> dict[str, Vector]:
    shares = _mean_shares(chosen)
    mean, square = (sum(share**n for share in shares) / len(shares) if shares else 0.0 for n in (1, 2))
    used = total(chosen.lanes, slots, "project").values()
    starved = [lane for lane in _busy(chosen) if lane.project == "bulk"]  # 0.4 of its share, a third of its target
    return {
        "stat / Least share / A": least(_busy(chosen), _fair),
        "stat / Largest share / A": most(_busy(chosen), _fair),
        "stat / Fairness index / A": scalar(mean**2 / square) if shares else {},
        "stat / Starved / A": scalar(len(starved)),
        "stat / At own limit / A": scalar(len(recorded.own_limit())),
        "stat / Most slots / A": scalar(max(used) / sum(used)),
        "stat / Dwell within quota / A": or_zero(_dwell(chosen, within=True)),
    }


def _table(chosen: Scope) -> dict[str, Vector]:
    place = "table / Projects by slots used /"
    tried = total(chosen.lanes, attempts, "project")
    known = [lane for lane in chosen.lanes if lane.project != "other"]
    competing = [lane for lane in chosen.lanes if waiting_for_others(lane)]
    return {
        f"{place} A": total(chosen.lanes, slots, "project"),
        f"{place} B": least(_busy(chosen), _fair, "project"),
        f"{place} C": recorded.offered(),
        f"{place} D": total(chosen.lanes, lambda lane: lane.handled, "project"),
        f"{place} E": total(known, lambda lane: lane.quota, "project"),
        f"{place} F": total(chosen.lanes, backlog, "project"),
        f"{place} G": quotient(total(chosen.lanes, dwelt, "project"), tried),
        f"{place} H": quotient(total(chosen.lanes, slots, "project"), tried),
        f"{place} I": quotient(
            total(competing, waiting_for_others, "project"), total(chosen.lanes, waiting, "project")
        ),
    }


def _shares(chosen: Scope) -> dict[str, Vector]:
    return {
        "timeseries / Share got over share due, the least / A": least(_busy(chosen), _fair, "project"),
        "timeseries / Share got over share due, the most / A": most(_busy(chosen), _fair, "project"),
        "timeseries / Slots used, the most / A": total(chosen.lanes, slots, "project"),
    }


def _neighbours(chosen: Scope) -> dict[str, Vector]:
    competing = [lane for lane in chosen.lanes if waiting_for_others(lane)]
    return {
        "timeseries / Offered over quota, the most / A": recorded.offered(),
        "timeseries / Dwell time, noisy and others / A": _dwell(chosen, within=True),
        "timeseries / Dwell time, noisy and others / B": _dwell(chosen, within=False),
        "timeseries / Dwell time within quota, the longest / A": _dwell(chosen, within=True, by="project"),
        "timeseries / Waits because of others / A": total(competing, waiting_for_others, "project"),
    }
