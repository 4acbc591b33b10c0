"""Fairness dashboard: shares of slots, tenants that take too much, and the effect on tenants within their quota."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.dashboards import records
from evenlane.dashboards.frame import Section, build_dashboard, shelf
from evenlane.dashboards.panels import GraphLine, TableColumn, course, figure, listing
from evenlane.dashboards.queries import (
    COMPETES,
    PRIORITIES,
    PROJECTS,
    among,
    least,
    most,
    of_env,
    or_zero,
    over,
    rate,
    series,
    total,
)
from evenlane.engine.telemetry import metric_names

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

_ALL = (PROJECTS, PRIORITIES)
_SHARE = series(metric_names.FAIR_SHARE, PROJECTS)
_STARVED = f"{least(_SHARE, 'project')} < 0.5"
_WAITED = f"({most(of_env(records.AGE_OVER_TARGET, PROJECTS), 'project')} > 0.25)"
_NOISY = f"({of_env(records.OWN_LIMIT)} > 0)"


def dashboard() -> Dashboard:
    return build_dashboard(
        "Fairness",
        "Share got over share due, noisy neighbours, and the waits of others because of them.",
        (
            Section("", (shelf(4, *_build_current()), shelf(10, _table()))),
            Section("Share got over share due", (shelf(9, *_shares()),)),
            Section("Noisy neighbours", (shelf(9, *_noisy()),)),
            Section("Those who keep to their quota", (shelf(9, *_victims()),)),
        ),
    )


def _build_current() -> tuple[Panel, ...]:
    return (*_shares_now(), *_neighbours_now())


def _shares_now() -> tuple[Panel, ...]:
    each = f"avg by (project) ({_SHARE})"
    mean, square = f"avg({each})", f"avg({each} ^ 2)"
    return (
        figure(
            "Least share",
            "The least slot time over the time due, of all busy projects; a project far below 100 % is starved.",
            least(_SHARE),
            unit="percentunit",
            steps=((0.5, "yellow"), (0.9, "green")),
            base="red",
            decimals=0,
        ),
        figure(
            "Largest share",
            "The most slot time over the time due; a project far above 100 % takes the share of others.",
            most(_SHARE),
            unit="percentunit",
            steps=((1.5, "yellow"), (2, "red")),
            decimals=0,
        ),
        figure(
            "Fairness index",
            "Jain's index of share got over share due, of all busy projects: 100 % if each gets its due"
            " share, 1/n if one takes all.",
            f"{mean} ^ 2 / {square}",
            unit="percentunit",
            steps=((0.8, "yellow"), (0.95, "green")),
            base="red",
            decimals=0,
        ),
        figure(
            "Starved",
            "Busy projects that get less than half of their due share, and whose oldest message has waited for a"
            " quarter of its target.",
            or_zero(f"count({among(_STARVED, _WAITED, 'project')})"),
            steps=((1, "red"),),
        ),
    )


def _neighbours_now() -> tuple[Panel, ...]:
    slots = total(rate(metric_names.TENANT_HANDLING, *_ALL), "project")
    return (
        figure(
            "At own limit",
            "Projects that offer more than their quota, or wait for a limit of their own, all nodes: the"
            " noisy neighbours.",
            or_zero(f"count({of_env(records.OWN_LIMIT, PROJECTS)} > 0)"),
        ),
        figure(
            "Most slots",
            "The part of all slot time that the project with the most of it has.",
            or_zero(over(f"max({slots})", f"sum({slots})")),
            unit="percentunit",
            decimals=0,
        ),
        figure(
            "Dwell within quota",
            "Mean time from put to the handler's start, of messages of projects that keep to their quota; a hot"
            " neighbour must not move it.",
            or_zero(_dwell(f"unless on (env, project) {_NOISY}")),
            unit="s",
            steps=((1, "yellow"), (10, "red")),
            decimals=2,
        ),
    )


def _table() -> Panel:
    attempts = total(rate(metric_names.ATTEMPTS, *_ALL), "project")
    waited = total(rate(metric_names.WAITING_SECONDS, *_ALL), "project")
    return listing(
        "Projects by slots used",
        "Projects with their slots, their offer against their quota, and their waits for others; click a"
        " project for its dashboard.",
        {"project": "Project"},
        TableColumn("Slots used", total(rate(metric_names.TENANT_HANDLING, *_ALL), "project"), decimals=2),
        TableColumn(
            "Got of due", least(_SHARE, "project"), "percentunit", ((0.0, "red"), (0.5, "yellow"), (0.9, "green")), 0
        ),
        TableColumn(
            "Offered of quota",
            most(of_env(records.OFFERED_OVER_QUOTA, PROJECTS), "project"),
            "percentunit",
            ((1.0, "orange"),),
            0,
        ),
        TableColumn(
            "Handled", total(rate(metric_names.OUTCOMES, *_ALL, 'outcome="handled"'), "project"), "mps", decimals=1
        ),
        TableColumn("Quota", total(series(metric_names.QUOTA, PROJECTS), "project"), "mps", decimals=1),
        TableColumn("Backlog", total(series(metric_names.BACKLOG, *_ALL), "project")),
        TableColumn(
            "Dwell, mean", over(total(rate(metric_names.TENANT_DWELL, *_ALL), "project"), attempts), "s", decimals=2
        ),
        TableColumn(
            "Handling, mean",
            over(total(rate(metric_names.TENANT_HANDLING, *_ALL), "project"), attempts),
            "s",
            decimals=3,
        ),
        TableColumn(
            "Waits for others",
            over(total(rate(metric_names.WAITING_SECONDS, *_ALL, COMPETES), "project"), waited),
            "percentunit",
            ((0.5, "yellow"),),
            0,
        ),
        first="Slots used",
    )


def _shares() -> tuple[Panel, ...]:
    return (
        course(
            "Share got over share due, the least",
            "The ten busy projects that get the least of their due share, on their worst node; below 50 % for long is"
            " starving.",
            GraphLine(f"bottomk(10, {least(_SHARE, 'project')})", "{{project}}"),
            unit="percentunit",
            steps=((0.5, "red"),),
            projects=True,
        ),
        course(
            "Share got over share due, the most",
            "The ten projects that get the most over their due share; it is fair to use idle slots, but not to take"
            " those of others.",
            GraphLine(f"topk(10, {most(_SHARE, 'project')})", "{{project}}"),
            unit="percentunit",
            steps=((2, "red"),),
            projects=True,
        ),
    )


def _noisy() -> tuple[Panel, ...]:
    return (
        course(
            "Slots used, the most",
            "Handlers that run at the same time, of the ten projects with most of them.",
            GraphLine(f"topk(10, {total(rate(metric_names.TENANT_HANDLING, *_ALL), 'project')})", "{{project}}"),
            stacked=True,
            projects=True,
        ),
        course(
            "Offered over quota, the most",
            "Messages per second that arrive, as a part of the quota, all nodes; above 100 % the rest becomes its own"
            " backlog.",
            GraphLine(f"topk(10, {most(of_env(records.OFFERED_OVER_QUOTA, PROJECTS), 'project')})", "{{project}}"),
            unit="percentunit",
            steps=((1, "red"),),
            projects=True,
        ),
    )


def _victims() -> tuple[Panel, ...]:
    return (
        course(
            "Dwell time, noisy and others",
            "Mean time from put to the handler's start: of projects that keep to their quota, and of those at a limit"
            " of their own; the first must stay flat when the second rises.",
            GraphLine(_dwell(f"unless on (env, project) {_NOISY}"), "within quota"),
            GraphLine(_dwell(f"and on (env, project) {_NOISY}"), "at their own limit"),
            unit="s",
            log=True,
        ),
        course(
            "Dwell time within quota, the longest",
            "The ten longest mean times from put to the handler's start, of projects that keep to their quota.",
            GraphLine(f"topk(10, {_dwell(f'unless on (env, project) {_NOISY}', 'project')})", "{{project}}"),
            unit="s",
            projects=True,
        ),
        course(
            "Waits because of others",
            "Heads of queues that wait for slots of others, on average, of the ten projects with most of them.",
            GraphLine(
                f"topk(10, {total(rate(metric_names.WAITING_SECONDS, *_ALL, COMPETES), 'project')})", "{{project}}"
            ),
            projects=True,
        ),
    )


def _dwell(which: str, *by: str) -> str:
    """Return the mean dwell time of the projects selected by `which`."""
    dwelt = total(f"{rate(metric_names.TENANT_DWELL, *_ALL)} {which}", *by)
    return over(dwelt, total(f"{rate(metric_names.ATTEMPTS, *_ALL)} {which}", *by))
