"""Delivery dashboard: failures, retries, dead letters, and messages that may have been handled twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.dashboards.frame import Section, build_dashboard, shelf
from evenlane.dashboards.panels import GraphLine, TableColumn, bars, course, density, figure, listing
from evenlane.dashboards.queries import (
    ENDED,
    PRIORITIES,
    PROJECTS,
    add_node_name,
    in_each_span,
    increase,
    or_zero,
    over,
    quantile,
    rate,
    series,
    total,
)
from evenlane.engine.telemetry import metric_names

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Dashboard, Panel

_ALL = (PROJECTS, PRIORITIES)


def dashboard() -> Dashboard:
    return build_dashboard(
        "Delivery",
        "Retries, dead letters, expiries, duplicates, and missing messages.",
        (
            Section("", (shelf(4, *_build_outcomes(), *_build_losses()), shelf(9, _table()))),
            Section("Attempts", (shelf(8, *_attempts()), shelf(8, *_build_failures()))),
            Section("Given up", (shelf(8, *_build_drops()),)),
            Section("Twice, or never", (shelf(8, *_build_repeats()),)),
            Section("Times", (shelf(9, *_times()), shelf(8, *_quantiles()))),
        ),
    )


def _build_outcomes() -> tuple[Panel, ...]:
    return (
        figure(
            "Success rate",
            "Attempts that succeeded, of all that ended; a fall means that a handler or endpoint fails.",
            over(
                total(rate(metric_names.OUTCOMES, *_ALL, 'outcome="handled"')),
                total(rate(metric_names.OUTCOMES, *_ALL, ENDED)),
            ),
            unit="percentunit",
            steps=((0.95, "yellow"), (0.99, "green")),
            base="red",
            decimals=1,
        ),
        figure(
            "Retries",
            "Attempts per second that failed and are retried later.",
            or_zero(total(rate(metric_names.OUTCOMES, *_ALL, 'outcome="retried"'))),
            unit="mps",
            steps=((1, "yellow"),),
            decimals=1,
        ),
        _build_outcome(
            "Dead letters",
            "dead",
            "Messages that failed for good in this time range; `evenlane dlq list` shows them.",
            "red",
        ),
        _build_outcome(
            "Expired",
            "expired",
            "Messages that outlived their ttl in this time range, also those that are kept as dead letters.",
            "yellow",
        ),
        _build_outcome(
            "Dropped", "dropped", "Messages that people dropped in this time range, by purge or cancel.", "blue"
        ),
    )


def _build_losses() -> tuple[Panel, ...]:
    return (
        figure(
            "Maybe twice",
            "Messages of all projects in this time range that may be handled twice: their handler had begun when its"
            " process died, hung, or lost its stream.",
            or_zero(total(increase(metric_names.DUPLICATES))),
            decimals=0,
            steps=((1, "yellow"),),
        ),
        figure(
            "Missing",
            "Messages of all projects that the store no longer had, in this time range: deleted by hand, or lost by the"
            " server.",
            or_zero(total(increase(metric_names.MISSING))),
            decimals=0,
            steps=((1, "red"),),
        ),
        figure(
            "Stray",
            "Messages in this time range on a subject that no queue has; `evenlane dlq list _stray` shows them.",
            or_zero(total(increase(metric_names.STRAY))),
            decimals=0,
            steps=((1, "yellow"),),
        ),
    )


def _build_outcome(title: str, outcome: str, description: str, colour: str) -> Panel:
    expr = or_zero(total(increase(metric_names.OUTCOMES, *_ALL, f'outcome="{outcome}"')))
    return figure(title, description, expr, decimals=0, steps=((1, colour),))


def _table() -> Panel:
    return listing(
        "Projects by what fails",
        "Ends of attempts and messages in this time range; click a project for its dashboard.",
        {"project": "Project"},
        *(
            TableColumn(
                outcome.capitalize(),
                total(increase(metric_names.OUTCOMES, *_ALL, f'outcome="{outcome}"'), "project"),
                steps=((1, colour),) if colour else (),
                decimals=0,
            )
            for outcome, colour in zip(metric_names.OUTCOMES_OF, ("", "yellow", "red", "orange", ""), strict=True)
        ),
        TableColumn(
            "Failed of attempts",
            over(
                total(increase(metric_names.OUTCOMES, *_ALL, 'outcome=~"retried|dead"'), "project"),
                total(increase(metric_names.OUTCOMES, *_ALL, ENDED), "project"),
            ),
            "percentunit",
            ((0.01, "yellow"), (0.05, "red")),
            1,
        ),
        TableColumn(
            "Missing", total(increase(metric_names.MISSING_MESSAGES, *_ALL), "project"), steps=((1, "red"),), decimals=0
        ),
        first="Dead",
    )


def _attempts() -> tuple[Panel, ...]:
    return (
        course(
            "How attempts and messages end",
            "Ends per second by outcome; on a log scale, as failures are few compared with handled messages.",
            GraphLine(total(rate(metric_names.OUTCOMES, *_ALL), "outcome"), "{{outcome}}"),
            unit="mps",
            log=True,
        ),
        course(
            "Failed of attempts, by priority",
            "Attempts that failed, of all that ended, by the priority of their messages.",
            GraphLine(
                over(
                    total(rate(metric_names.OUTCOMES, *_ALL, 'outcome=~"retried|dead"'), "priority"),
                    total(rate(metric_names.OUTCOMES, *_ALL, ENDED), "priority"),
                ),
                "{{priority}}",
            ),
            unit="percentunit",
        ),
    )


def _build_failures() -> tuple[Panel, ...]:
    return tuple(
        course(
            title,
            description,
            GraphLine(_topmost(outcome), "{{project}}"),
            unit="mps",
            projects=True,
        )
        for title, description, outcome in (
            (
                "Retries, the most",
                "Failed attempts per second that are retried, of the ten projects with most.",
                "retried",
            ),
            ("Dead letters, the most", "Messages per second that fail finally, of the ten projects with most.", "dead"),
        )
    )


def _topmost(outcome: str) -> str:
    by_project = total(rate(metric_names.OUTCOMES, *_ALL, f'outcome="{outcome}"'), "project")
    return f"topk(10, {by_project} > 0)"


def _build_drops() -> tuple[Panel, ...]:
    return tuple(
        bars(
            title,
            description,
            GraphLine(
                total(in_each_span(metric_names.OUTCOMES, *_ALL, f'outcome="{outcome}"'), "priority"), "{{priority}}"
            ),
        )
        for title, description, outcome in (
            (
                "Dead letters over time",
                "Messages that failed finally in the time of each bar; `evenlane dlq replay` puts them again.",
                "dead",
            ),
            (
                "Expired over time",
                "Messages that outlived their ttl in the time of each bar; a longer ttl or more quota keeps them.",
                "expired",
            ),
            (
                "Dropped over time",
                "Messages that people dropped in the time of each bar; `evenlane topics history` may show who did.",
                "dropped",
            ),
        )
    )


def _build_repeats() -> tuple[Panel, ...]:
    pending = add_node_name(total(series(metric_names.PENDING_COPIES), "env", "instance"))
    return (
        bars(
            "Maybe handled twice, by cause",
            "crash: the process died during the handler; hung: the handler exceeded ack_wait; void: the stream was"
            " replaced.",
            GraphLine(total(in_each_span(metric_names.DUPLICATES), "cause"), "{{cause}}"),
        ),
        bars(
            "Missing and stray",
            "Sequences that the store no longer had, and messages on subjects that no queue has; neither should"
            " happen.",
            GraphLine(total(in_each_span(metric_names.MISSING)), "missing"),
            GraphLine(total(in_each_span(metric_names.STRAY)), "stray"),
        ),
        course(
            "Copies that wait to be stored",
            "Retries and dead letters that NATS hasn't stored yet; their originals stay, and from 64 on the project"
            " waits.",
            GraphLine(pending, "{{node}}"),
            steps=((64, "red"),),
        ),
    )


def _times() -> tuple[Panel, ...]:
    return (
        density(
            "Dwell time",
            "Distribution of the time from put (or due) to the handler's start, of all projects together.",
            total(rate(f"{metric_names.DWELL}_bucket", PRIORITIES), "le"),
        ),
        density(
            "Handling time",
            "Distribution of the handlers' running time, of all projects together.",
            total(rate(f"{metric_names.HANDLING}_bucket", PRIORITIES), "le"),
        ),
    )


def _quantiles() -> tuple[Panel, ...]:
    return tuple(
        course(
            f"{title}, quantiles",
            description,
            *(GraphLine(quantile(q, name, PRIORITIES), f"p{q * 100:g}") for q in (0.5, 0.9, 0.99)),
            unit="s",
            log=True,
        )
        for title, description, name in (
            (
                "Dwell time",
                "From put (or due) to the handler's start, of all projects and the chosen priorities together.",
                metric_names.DWELL,
            ),
            (
                "Handling time",
                "How long handlers run, of all projects and the chosen priorities together.",
                metric_names.HANDLING,
            ),
        )
    )
