"""Metric families of tenants. `TenantRegistry` has already chosen which projects have a label of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from evenlane.engine.telemetry import metric_names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client.core import Metric

    from evenlane.engine.telemetry.prometheus.snapshot import Snapshot
    from evenlane.engine.telemetry.tenants.backlog import TenantBacklog

_TENANT = ["env", "project", "priority"]
_SECOND = 1_000_000_000


def tenant_families(seen: Snapshot) -> Iterator[Metric]:
    yield from _waits(seen)
    yield from _counters(seen)
    yield from _gauges(seen)
    yield from _shares(seen)


def _waits(seen: Snapshot) -> Iterator[Metric]:
    labels, tenants = [*_TENANT, "reason"], seen.tenants
    for name, help_text, counters in (
        (
            metric_names.WAITING_SECONDS,
            "Time that heads of queues waited, by reason, added up over queues",
            tenants.seconds,
        ),
        (
            metric_names.WAITING_MESSAGE_SECONDS,
            "The same time, multiplied by the messages in these queues",
            tenants.message_seconds,
        ),
    ):
        family = CounterMetricFamily(name, help_text, labels=labels)
        for key, seconds in counters.items():
            family.add_metric([seen.env, key.label, seen.priorities[key.band], key.reason], seconds)
        yield family
    now = GaugeMetricFamily(metric_names.WAITING_QUEUES, "Queues whose head waits for this reason", labels=labels)
    for (label, band), tenant_backlog in tenants.table.items():
        for reason, queues in tenant_backlog.reasons.items():
            now.add_metric([seen.env, label, seen.priorities[band], reason], queues)
    yield now


def _counters(seen: Snapshot) -> Iterator[Metric]:
    arrived = CounterMetricFamily(
        metric_names.ARRIVED,
        "Messages that came in; a retry, a message that is due and a backlog taken over come in, too",
        labels=_TENANT,
    )
    ended = CounterMetricFamily(
        metric_names.OUTCOMES, "Messages and attempts that ended, by how", labels=[*_TENANT, "outcome"]
    )
    attempts = CounterMetricFamily(
        metric_names.ATTEMPTS, "Attempts at messages for which a handler was started, and that ended", labels=_TENANT
    )
    dwell = CounterMetricFamily(
        metric_names.TENANT_DWELL, "Time that messages waited until their handler was started, added up", labels=_TENANT
    )
    handling = CounterMetricFamily(
        metric_names.TENANT_HANDLING, "Time that slots were busy with handlers, added up", labels=_TENANT
    )
    missing = CounterMetricFamily(
        metric_names.MISSING_MESSAGES, "Messages that were known and then weren't in their stream", labels=_TENANT
    )
    for (label, band), flow in seen.tenants.counted.items():
        labels = [seen.env, label, seen.priorities[band]]
        arrived.add_metric(labels, flow.arrived)
        attempts.add_metric(labels, flow.attempts)
        dwell.add_metric(labels, flow.dwelt / _SECOND)
        handling.add_metric(labels, flow.ran / _SECOND)
        missing.add_metric(labels, flow.missing)
        for outcome in metric_names.OUTCOMES_OF:
            ended.add_metric([*labels, outcome], getattr(flow, outcome))
    yield from (arrived, ended, attempts, dwell, handling, missing)


def _gauges(seen: Snapshot) -> Iterator[Metric]:
    gauges: tuple[tuple[str, str, Callable[[TenantBacklog], float | None]], ...] = (
        (metric_names.BACKLOG, "Messages that wait, without those that aren't due", lambda each: each.backlog),
        (metric_names.IN_FLIGHT, "Messages that are handled now, or are about to be", lambda each: each.in_flight),
        (metric_names.OLDEST, "For how long the oldest message has waited", lambda each: each.age_s),
        (
            metric_names.ARRIVAL_RATE,
            "Messages per second that arrive",
            lambda each: each.rates.arriving if each.rates else None,
        ),
        (
            metric_names.DRAIN_RATE,
            "Messages per second that leave",
            lambda each: each.rates.leaving if each.rates else None,
        ),
        (metric_names.TIME_TO_EMPTY, "Time until the backlog is empty at this rate", lambda each: each.empty_in),
    )
    for name, help_, value_of in gauges:
        family = GaugeMetricFamily(name, help_, labels=_TENANT)
        for (label, band), tenant_backlog in seen.tenants.table.items():
            if (value := value_of(tenant_backlog)) is not None:
                family.add_metric([seen.env, label, seen.priorities[band]], value)
        yield family


def _shares(seen: Snapshot) -> Iterator[Metric]:
    tenants = seen.tenants
    quotas = GaugeMetricFamily(
        metric_names.QUOTA, "Messages per second that this node may take of the topic now", labels=["env", "project"]
    )
    for project, qps in tenants.quotas.items():
        quotas.add_metric([seen.env, project], qps)
    yield quotas
    fair = GaugeMetricFamily(
        metric_names.FAIR_SHARE, "Slot time got over slot time due, of the last half minute", labels=["env", "project"]
    )
    for project, ratio in tenants.usage.ratios().items():
        if project in tenants.quotas:
            fair.add_metric([seen.env, project], ratio)
    yield fair
