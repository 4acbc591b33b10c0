"""Tenant dashboard: one project's share, wait reasons, and forecast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.dashboards import records, styles
from evenlane.dashboards.frame import Section, build_dashboard, shelf
from evenlane.dashboards.panels import GraphLine, bars, course, figure
from evenlane.dashboards.queries import (
    COMPETES,
    PRIORITIES,
    PROJECTS,
    clamp,
    in_each_span,
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

_MINE = (PROJECTS, PRIORITIES)


def dashboard() -> Dashboard:
    return build_dashboard(
        "Tenant",
        "One project: backlog, age, rates, wait reasons, quota used, forecast. `evenlane why` says the same in words.",
        (
            Section("", (shelf(4, *_build_current()),)),
            Section("What waits, and for what", (shelf(8, *_backlog()), shelf(8, *_reasons()))),
            Section("Rates and quota", (shelf(8, *_rates()),)),
            Section("Time and share", (shelf(8, *_times()), shelf(8, *_slots()))),
            Section("What fails", (shelf(8, *_failures()),)),
        ),
        one_project=True,
    )


def _build_current() -> tuple[Panel, ...]:
    return (*_waits_now(), *_moves_now())


def _waits_now() -> tuple[Panel, ...]:
    return (
        figure(
            "Backlog",
            "Messages of the project that are due and wait.",
            or_zero(total(series(metric_names.BACKLOG, *_MINE))),
        ),
        figure(
            "Oldest",
            "How long its oldest message has waited. Empty while that is unknown.",
            most(series(metric_names.OLDEST, *_MINE)),
            unit="s",
            decimals=1,
        ),
        figure(
            "Age of target",
            "Age of its oldest message as a part of its priority's target, all nodes; above 100 % it is late."
            " Empty while its age is unknown.",
            most(of_env(records.AGE_OVER_TARGET, *_MINE)),
            unit="percentunit",
            steps=((0.7, "yellow"), (1, "red")),
            decimals=0,
        ),
        figure(
            "Gone in",
            "When its backlog is gone at this rate; never means that as much arrives as leaves, or more, or a"
            " pause. Empty while rates are measured again.",
            clamp(most(series(metric_names.TIME_TO_EMPTY, *_MINE)), styles.FOR_EVER_S),
            unit="s",
            steps=((600, "yellow"), (3600, "red")),
            never=True,
        ),
    )


def _moves_now() -> tuple[Panel, ...]:
    attempts = total(rate(metric_names.ATTEMPTS, PROJECTS))
    return (
        figure(
            "Arrives",
            "Messages per second that come in, including retries.",
            or_zero(total(rate(metric_names.ARRIVED, *_MINE))),
            unit="mps",
            decimals=1,
        ),
        figure(
            "Handled",
            "Messages per second that are handled.",
            or_zero(total(rate(metric_names.OUTCOMES, *_MINE, 'outcome="handled"'))),
            unit="mps",
            decimals=1,
        ),
        figure(
            "Quota used",
            "Attempts per second as a part of its quota; near 100 % with a backlog, only more quota helps.",
            or_zero(over(attempts, total(series(metric_names.QUOTA, PROJECTS)))),
            unit="percentunit",
            steps=((0.95, "yellow"),),
            decimals=0,
        ),
        figure(
            "Got of due",
            "Slot time it got over the time due, on the node where that is least; far below 100 % it is starved."
            " Empty while it isn't busy.",
            least(series(metric_names.FAIR_SHARE, PROJECTS)),
            unit="percentunit",
            steps=((0.5, "yellow"), (0.9, "green")),
            base="red",
            decimals=0,
        ),
    )


def _backlog() -> tuple[Panel, ...]:
    return (
        course(
            "Backlog by priority",
            "Messages that are due and wait.",
            GraphLine(total(series(metric_names.BACKLOG, *_MINE), "priority"), "{{priority}}"),
            stacked=True,
        ),
        course(
            "Age of the oldest, and its target",
            "How long the oldest message has waited, by priority; above the dashed target of its priority it is late.",
            GraphLine(most(series(metric_names.OLDEST, *_MINE), "priority"), "{{priority}}"),
            GraphLine(f'{records.AGE_TARGET}{{priority!="",{PRIORITIES}}}', "target of {{priority}}", dashed=True),
            unit="s",
        ),
        course(
            "Forecast",
            "When the backlog of a priority is empty, at the rates of the last half minute; a line at one year means"
            " never.",
            GraphLine(
                clamp(most(series(metric_names.TIME_TO_EMPTY, *_MINE), "priority"), styles.FOR_EVER_S), "{{priority}}"
            ),
            unit="s",
            log=True,
        ),
    )


def _reasons() -> tuple[Panel, ...]:
    waited = rate(metric_names.WAITING_SECONDS, *_MINE)
    return (
        course(
            "Messages that wait, by reason",
            "Messages that wait behind a head with this reason; the documentation has a remedy for each under "
            '"Why is this waiting?".',
            GraphLine(total(rate(metric_names.WAITING_MESSAGE_SECONDS, *_MINE), "reason"), "{{reason}}"),
            stacked=True,
        ),
        course(
            "What it waits for, as shares of the time",
            "Share of each reason in the waiting time of its queues' heads; mostly quota means that it waits for"
            " itself, mostly fairness, handlers_busy or headroom for others.",
            GraphLine(f"{total(waited, 'reason')} / on () group_left () ({total(waited)} > 0)", "{{reason}}"),
            unit="percentunit",
            stacked=True,
            most=1,
        ),
        course(
            "Queues that wait now",
            "Queues (groups and priorities) by the present wait reason of their head.",
            GraphLine(total(series(metric_names.WAITING_QUEUES, *_MINE), "reason"), "{{reason}}"),
            stacked=True,
        ),
    )


def _rates() -> tuple[Panel, ...]:
    return (
        course(
            "Offered, handled and quota",
            "Arrivals (also retries) and handled messages against the quota of all nodes; arrivals above the quota"
            " become backlog.",
            GraphLine(total(rate(metric_names.ARRIVED, PROJECTS)), "arrived"),
            GraphLine(total(rate(metric_names.OUTCOMES, PROJECTS, 'outcome="handled"')), "handled"),
            GraphLine(total(series(metric_names.QUOTA, PROJECTS)), "quota", dashed=True),
            unit="mps",
        ),
        course(
            "Handled by priority",
            "Messages per second that are handled; strict priority starves low ones if high fills the quota.",
            GraphLine(total(rate(metric_names.OUTCOMES, *_MINE, 'outcome="handled"'), "priority"), "{{priority}}"),
            unit="mps",
            stacked=True,
        ),
        course(
            "Rates of the forecast",
            "Messages that arrive and that leave, over up to half a minute; the forecast doesn't count those that"
            " people drop. Gaps are takeovers.",
            GraphLine(total(series(metric_names.ARRIVAL_RATE, *_MINE)), "arrives"),
            GraphLine(total(series(metric_names.DRAIN_RATE, *_MINE)), "leaves"),
            unit="mps",
        ),
        course(
            "Quota by node",
            "The part of its quota that each node may use now, with loans; it follows the backlog.",
            GraphLine(total(series(metric_names.QUOTA, PROJECTS), "instance"), "{{instance}}"),
            unit="mps",
            stacked=True,
        ),
    )


def _times() -> tuple[Panel, ...]:
    attempts = total(rate(metric_names.ATTEMPTS, *_MINE), "priority")
    return (
        course(
            "Dwell time, mean",
            "From put (or due) to the start of the handler, mean by priority.",
            GraphLine(over(total(rate(metric_names.TENANT_DWELL, *_MINE), "priority"), attempts), "{{priority}}"),
            unit="s",
        ),
        course(
            "Handling time, mean",
            "How long its handlers run, mean by priority; slow ones use up slots, not quota.",
            GraphLine(over(total(rate(metric_names.TENANT_HANDLING, *_MINE), "priority"), attempts), "{{priority}}"),
            unit="s",
        ),
    )


def _slots() -> tuple[Panel, ...]:
    return (
        course(
            "Slots used",
            "Handlers of the project that run at the same time, and messages about to be handled.",
            GraphLine(total(rate(metric_names.TENANT_HANDLING, *_MINE)), "slots, mean"),
            GraphLine(total(series(metric_names.IN_FLIGHT, *_MINE)), "in flight"),
        ),
        course(
            "Share got over share due",
            "Slot time over what max-min fairness gives it, by node, while it is busy; 100 % is fair.",
            GraphLine(series(metric_names.FAIR_SHARE, PROJECTS), "{{instance}}"),
            unit="percentunit",
            steps=((1, "green"),),
        ),
        course(
            "Waits because of others",
            "Heads of its queues that wait for slots of others, on average; with much of it, more nodes or a"
            " `reserve` help.",
            GraphLine(total(rate(metric_names.WAITING_SECONDS, *_MINE, COMPETES), "reason"), "{{reason}}"),
            stacked=True,
        ),
    )


def _failures() -> tuple[Panel, ...]:
    return (
        course(
            "How attempts and messages end",
            "Ends per second; many retries mean that its handler or endpoint fails.",
            GraphLine(total(rate(metric_names.OUTCOMES, *_MINE), "outcome"), "{{outcome}}"),
            unit="mps",
        ),
        bars(
            "Dead letters, expired and dropped",
            "Messages that ended unhandled in the time of each bar; `evenlane dlq list` shows the dead letters"
            " with their errors.",
            GraphLine(
                total(in_each_span(metric_names.OUTCOMES, *_MINE, _DEAD_OR_GONE), "outcome"),
                "{{outcome}}",
            ),
        ),
    )


_DEAD_OR_GONE = 'outcome=~"dead|expired|dropped"'
