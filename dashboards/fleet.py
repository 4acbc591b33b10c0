"""Fleet dashboard: overall health, firing alerts, load of nodes, ownership of partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.dashboards import fleet_nodes as nodes
from evenlane.dashboards import records
from evenlane.dashboards.frame import Section, build_dashboard, shelf
from evenlane.dashboards.panels import GraphLine, TableColumn, course, figure, listing
from evenlane.dashboards.queries import (
    COMPETES,
    PRIORITIES,
    among,
    most,
    of_env,
    or_always_zero,
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

_FIRING = 'ALERTS{alertname=~"Evenlane.+",alertstate="firing",env=~"$env|"}'
_LATEST = f"topk(10, {most(of_env(records.AGE_OVER_TARGET, PRIORITIES), 'project')})"


def _of_latest(expr: str) -> str:
    return among(expr, _LATEST, "project")


def dashboard() -> Dashboard:
    return build_dashboard(
        "Fleet",
        "All nodes of an environment: rates, saturation, ownership and rebalances. Begin here.",
        (
            Section("", (shelf(4, *_build_current()), shelf(8, *_attention(), widths=(8,)))),
            Section("Rates", (shelf(8, *_rates()), shelf(8, *_times()))),
            Section("What waits", (shelf(8, *_waits()),)),
            Section(
                "Saturation", (shelf(8, *nodes.saturation()), shelf(8, *nodes.behind()), shelf(8, *nodes.process()))
            ),
            Section(
                "Nodes and ownership",
                (
                    shelf(9, *nodes.table(), widths=(16,)),
                    shelf(8, *nodes.ownership()),
                    shelf(4, *nodes.figures()),
                    shelf(6, nodes.subscriptions()),
                ),
            ),
        ),
        projects=False,
    )


def _build_current() -> tuple[Panel, ...]:
    return (
        figure(
            "Nodes",
            "Nodes that are scraped and have joined; compare with how many you run: a missing one is down, out of"
            " reach, or can't join.",
            or_always_zero(f"count({of_env(metric_names.SLOTS)})"),
            steps=((1, "green"),),
            base="red",
        ),
        figure(
            "Without owner",
            "Partitions that no scraped node owns; above 0 for longer than a lease, look at `evenlane plan` and etcd."
            " Empty while no node has joined.",
            f"{most(of_env(metric_names.PARTITIONS))} - {total(of_env(metric_names.OWNED))}",
            steps=((1, "red"),),
        ),
        figure(
            "Alerts firing",
            "Alerts of Evenlane that fire now; the table below names them.",
            or_always_zero(f"count({_FIRING})"),
            steps=((1, "red"),),
        ),
        figure(
            "Age of target",
            "The worst age of a queue's oldest message as a part of the target of its priority, all nodes; above"
            " 100 % it is late: the table below says whose. Empty while unknown.",
            most(of_env(records.AGE_OVER_TARGET, PRIORITIES)),
            unit="percentunit",
            steps=((0.7, "yellow"), (1, "red")),
            decimals=0,
        ),
        figure(
            "Handled",
            "Messages per second that are handled; a fall during a backlog means trouble.",
            or_zero(total(rate(metric_names.OUTCOMES, 'outcome="handled"', PRIORITIES))),
            unit="mps",
        ),
        figure(
            "Backlog",
            "Messages that are due and wait; its growth matters, not its existence.",
            or_zero(total(series(metric_names.BACKLOG, PRIORITIES))),
        ),
        figure(
            "Slots busy",
            "Handlers that run, of all that may; near 100 % for long the fleet is too small.",
            over(total(series(metric_names.SLOTS_BUSY)), total(series(metric_names.SLOTS))),
            unit="percentunit",
            steps=((0.8, "yellow"), (0.95, "red")),
            decimals=0,
        ),
        figure(
            "Settle lag",
            "How long the oldest result has not been durable; from about 1 s on nothing new starts.",
            most(series(metric_names.SETTLE_LAG)),
            unit="s",
            steps=((0.5, "yellow"), (1, "red")),
            decimals=2,
        ),
    )


def _attention() -> tuple[Panel, ...]:
    late = (0.7, "yellow"), (1.0, "red")
    return (
        listing(
            "What fires",
            "Alerts of Evenlane that fire now, of all subscriptions; their runbooks say what to do.",
            {
                "alertname": "Alert",
                "severity": "Severity",
                "subscription": "Subscription",
                "project": "Project",
                "instance": "Node",
            },
            TableColumn("Firing", f"count by (alertname, severity, subscription, project, instance) ({_FIRING})"),
            first="Severity",
            most_first=False,
        ),
        listing(
            "Projects that wait longest",
            "The ten projects whose oldest message is latest against its target, all nodes; click one for its"
            " dashboard.",
            {"project": "Project"},
            TableColumn(
                "Of target",
                _LATEST,
                "percentunit",
                late,
                0,
            ),
            TableColumn(
                "Oldest", _of_latest(most(series(metric_names.OLDEST, PRIORITIES), "project")), "s", decimals=1
            ),
            TableColumn("Backlog", _of_latest(total(series(metric_names.BACKLOG, PRIORITIES), "project"))),
            TableColumn(
                "Handled",
                _of_latest(total(rate(metric_names.OUTCOMES, 'outcome="handled"', PRIORITIES), "project")),
                "mps",
                decimals=1,
            ),
            TableColumn("Quota", _of_latest(total(series(metric_names.QUOTA), "project")), "mps", decimals=1),
            TableColumn(
                "Waits for others",
                _of_latest(
                    over(
                        total(rate(metric_names.WAITING_SECONDS, COMPETES, PRIORITIES), "project"),
                        total(rate(metric_names.WAITING_SECONDS, PRIORITIES), "project"),
                    )
                ),
                "percentunit",
                ((0.5, "yellow"),),
                0,
            ),
            first="Of target",
        ),
    )


def _rates() -> tuple[Panel, ...]:
    ended = total(rate(metric_names.OUTCOMES, PRIORITIES), "outcome")
    return (
        course(
            "Arrivals and ends",
            "Messages per second that come in (also retries, and delayed messages that become due), and the ends of"
            " attempts.",
            GraphLine(total(rate(metric_names.ARRIVED, PRIORITIES)), "arrived"),
            GraphLine(ended, "{{outcome}}"),
            unit="mps",
        ),
        course(
            "Handled by priority",
            "Messages per second that are handled; if a low priority gets none, higher ones take all.",
            GraphLine(total(rate(metric_names.OUTCOMES, 'outcome="handled"', PRIORITIES), "priority"), "{{priority}}"),
            unit="mps",
            stacked=True,
        ),
    )


def _times() -> tuple[Panel, ...]:
    return tuple(
        course(
            title,
            description,
            *(
                GraphLine(quantile(q, name, PRIORITIES, by=("priority",)), f"{{{{priority}}}} p{q * 100:g}")
                for q in (0.5, 0.99)
            ),
            unit="s",
            log=True,
        )
        for title, description, name in (
            (
                "Dwell time",
                "From put (or due) to the handler's start, p50 and p99; high should stay flat at any load of low.",
                metric_names.DWELL,
            ),
            (
                "Handling time",
                "How long handlers run, p50 and p99; if it grows, look at the services that handlers call.",
                metric_names.HANDLING,
            ),
        )
    )


def _waits() -> tuple[Panel, ...]:
    return (
        course(
            "Messages that wait, by reason",
            "Messages that wait behind a head with this reason; quota and paused are intended, the slots'"
            " reasons (fairness, handlers_busy, headroom) call for more nodes.",
            GraphLine(total(rate(metric_names.WAITING_MESSAGE_SECONDS, PRIORITIES), "reason"), "{{reason}}"),
            stacked=True,
        ),
        course(
            "Backlog by priority",
            "Messages that are due and wait; high should be near 0.",
            GraphLine(total(series(metric_names.BACKLOG, PRIORITIES), "priority"), "{{priority}}"),
            stacked=True,
        ),
        course(
            "Latest against target, by priority",
            "The oldest message's age as a part of its priority's target, worst project, all nodes; above the line"
            " it is late.",
            GraphLine(most(of_env(records.AGE_OVER_TARGET, PRIORITIES), "priority"), "{{priority}}"),
            unit="percentunit",
            steps=((1, "red"),),
        ),
    )
