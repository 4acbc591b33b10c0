"""Metric families of a node as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily

from evenlane.engine.base.troubles import KINDS
from evenlane.engine.telemetry import metric_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from prometheus_client.core import Metric

    from evenlane.engine.telemetry.node_health import Condition
    from evenlane.engine.telemetry.prometheus.snapshot import Snapshot


def node_families(seen: Snapshot) -> Iterator[Metric]:
    info = InfoMetricFamily(metric_names.NODE.removesuffix("_info"), "The node that serves this page", labels=["env"])
    info.add_metric([seen.env], {"node": seen.node, "version": seen.version})
    yield info
    if seen.condition is not None:
        yield from _condition(seen, seen.condition)
    if seen.desired_nodes is not None:
        help_text = "Nodes that there should be, for a HorizontalPodAutoscaler (`scaling` = `hpa`)"
        yield _gauge(seen, metric_names.DESIRED_NODES, help_text, seen.desired_nodes)
    if seen.subscriptions:
        yield _subscriptions(seen)
    yield _troubles(seen)
    yield from _counters(seen)
    tenants = seen.tenants
    yield _gauge(seen, metric_names.PROJECTS_LEFT_OUT, "Projects that share the label `other`", tenants.left_out)
    yield _gauge(seen, metric_names.ROUND, "Duration of the last look at all queues", tenants.round_s)
    yield _gauge(
        seen,
        metric_names.TOPICS_REFUSED,
        "Specs that the leader rejects now: the last good ones stay in effect",
        seen.refused,
    )


def _condition(seen: Snapshot, now: Condition) -> Iterator[Metric]:
    gauges: tuple[tuple[str, str, float], ...] = (
        (metric_names.LEADER, "Whether this node leads", now.leader),
        (metric_names.GENERATION, "Generation of the plan that was carried out last", now.generation),
        (metric_names.PARTITIONS, "Partitions of the environment", now.partitions),
        (metric_names.OWNED, "Partitions that this node owns", len(now.epochs)),
        (metric_names.LEASE_AGE, "Time since the last renewal of the lease was sent", now.lease_age_s),
        (metric_names.LEASE_LEFT, "Time until no handler may start; below 0: none may", now.lease_left_s),
        (metric_names.SETTLE_LAG, "How long the oldest result has not been durable", now.settle_lag_s),
        (metric_names.INDEX, "Messages that the node knows one by one", now.index_messages),
        (metric_names.PAYLOAD, "Payloads held ready", now.payload_bytes),
        (metric_names.PAYLOAD_BUDGET, "Payloads that may be held ready", now.payload_budget),
        (metric_names.SLOTS, "Handlers that may run at the same time", now.slots),
        (metric_names.SLOTS_BUSY, "Slots in which a handler runs", now.slots_busy),
        (metric_names.PENDING_COPIES, "Retries and dead letters that aren't stored yet", now.pending_copies),
        (metric_names.LOOP_LAG, "Longest delay of the event loop in the last 10 to 20 s", now.loop_lag_s),
        (metric_names.PROJECTS, "Projects with queues here", now.projects),
    )
    for name, help_, value in gauges:
        yield _gauge(seen, name, help_, value)
    connected = GaugeMetricFamily(metric_names.CONNECTED, "Whether there is a connection", labels=["env", "server"])
    connected.add_metric([seen.env, "nats"], now.connected)
    yield connected
    yield from _partitions(seen, now)


def _partitions(seen: Snapshot, now: Condition) -> Iterator[Metric]:
    where = now.positions
    gauges: tuple[tuple[str, str, Mapping[int, int]], ...] = (
        (metric_names.EPOCH, "Epoch under which this node owns a partition", now.epochs),
        (metric_names.END_SEQUENCE, "Last sequence of the lane", {n: at.end for n, at in where.items()}),
        (
            metric_names.SETTLED_SEQUENCE,
            "Sequence of the lane up to which every message is durably settled",
            {n: at.settled for n, at in where.items()},
        ),
        (
            metric_names.PURGED_SEQUENCE,
            "Sequence up to which settled messages were purged from the lane",
            {n: at.purged for n, at in where.items()},
        ),
    )
    for name, help_, values in gauges:
        family = GaugeMetricFamily(name, help_, labels=["env", "partition"])
        for partition, value in values.items():
            family.add_metric([seen.env, str(partition)], value)
        yield family


def _subscriptions(seen: Snapshot) -> Metric:
    """The label `subscription` is not this node's, but the one that the sample is about."""
    labels = ["env", "subscription", "state"]
    family = GaugeMetricFamily(metric_names.SUBSCRIPTION_NODES, "Running nodes of each subscription", labels=labels)
    for each in seen.subscriptions:
        family.add_metric([seen.env, each.name, each.state], each.nodes)
    return family


def _troubles(seen: Snapshot) -> Metric:
    family = GaugeMetricFamily(
        metric_names.TROUBLE, "Whether this keeps the node from its work", labels=["env", "kind"]
    )
    for kind in KINDS:
        family.add_metric([seen.env, kind], kind in seen.troubles)
    return family


def _counters(seen: Snapshot) -> Iterator[Metric]:
    counters = seen.counters
    causes = {"crash": "suspects", "hung": "given_up", "void": "void"}
    duplicates = {cause: counters.get(causes[cause], 0) for cause in metric_names.DUPLICATES_OF}
    moves = {how: seen.moves.get(how, 0) for how in metric_names.MOVES_OF}
    yield _counter(seen, metric_names.MOVES, "Partitions gained and lost, by how", moves.items(), "how")
    yield _counter(
        seen, metric_names.DUPLICATES, "Messages that may be handled twice, by cause", duplicates.items(), "cause"
    )
    yield _counter(
        seen,
        metric_names.TOPIC_REFUSALS,
        "Values of topics that were found invalid",
        seen.refusals.items(),
        "where",
    )
    blocked = CounterMetricFamily(metric_names.LOOP_BLOCKED, "Blocks of the event loop of 1 s and more", labels=["env"])
    blocked.add_metric([seen.env], seen.blocked_s)
    yield blocked
    help_text = "Blocks for which a process ended itself and whose partitions came here"
    yield _plain(seen, metric_names.ENDED_BLOCKED, help_text, counters, "ended_blocked_s")
    yield _plain(
        seen, metric_names.MISSING, "Messages that were known and then missing from their stream", counters, "missing"
    )
    yield _plain(seen, metric_names.STRAY, "Messages on a subject that no queue has", counters, "stray")


def _gauge(seen: Snapshot, name: str, help_text: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=["env"])
    family.add_metric([seen.env], value)
    return family


def _counter(seen: Snapshot, name: str, help_text: str, values: Iterable[tuple[str, int]], label: str) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=["env", label])
    for each, count in values:
        family.add_metric([seen.env, each], count)
    return family


def _plain(seen: Snapshot, name: str, help_text: str, counters: Mapping[str, int], counter: str) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=["env"])
    family.add_metric([seen.env], counters.get(counter, 0))
    return family
