"""Panels of the Fleet dashboard by node: load, lag, ownership."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.dashboards.panels import GraphLine, TableColumn, bars, course, figure, listing
from evenlane.dashboards.queries import (
    PROCESS_CPU,
    PROCESS_MEMORY,
    add_node_name,
    in_each_span,
    increase,
    least,
    most,
    or_zero,
    over,
    rate,
    series,
    total,
)
from evenlane.engine.telemetry import metric_names

if TYPE_CHECKING:
    from grafana_foundation_sdk.models.dashboard import Panel

_EACH = ("env", "instance")


def saturation() -> tuple[Panel, ...]:
    return (
        course(
            "Slots busy by node",
            "Handlers that run, of all a node may run; at 100 % for long add nodes or concurrency.",
            GraphLine(
                add_node_name(
                    over(total(series(metric_names.SLOTS_BUSY), *_EACH), total(series(metric_names.SLOTS), *_EACH))
                ),
                "{{node}}",
            ),
            unit="percentunit",
            most=1,
            steps=((0.95, "red"),),
        ),
        course(
            "Payload budget used",
            "Bytes of messages that a node holds ready, of its budget; full means that bodies are read again when their"
            " turn comes.",
            GraphLine(
                add_node_name(
                    over(
                        total(series(metric_names.PAYLOAD), *_EACH), total(series(metric_names.PAYLOAD_BUDGET), *_EACH)
                    )
                ),
                "{{node}}",
            ),
            unit="percentunit",
            steps=((0.95, "red"),),
        ),
        course(
            "Messages in the index",
            "Messages that a node knows of; it grows with the backlog, at 8 bytes each.",
            GraphLine(add_node_name(total(series(metric_names.INDEX), *_EACH)), "{{node}}"),
        ),
    )


def behind() -> tuple[Panel, ...]:
    return (
        course(
            "Loop lag",
            "The longest delay of a node's event loop in the last 10 to 20 s; above 1 s a handler blocks it, which is"
            " counted from then on.",
            GraphLine(add_node_name(most(series(metric_names.LOOP_LAG), *_EACH)), "{{node}}"),
            GraphLine(add_node_name(most(in_each_span(metric_names.LOOP_BLOCKED), *_EACH)), "{{node}} blocked"),
            GraphLine(
                add_node_name(most(in_each_span(metric_names.ENDED_BLOCKED), *_EACH)),
                "{{node}} took over from a blocked process",
            ),
            unit="s",
            steps=((1, "red"),),
        ),
        course(
            "Troubles",
            "Troubles of nodes, by kind: the event loop is blocked, etcd and the node differ about its partitions,"
            " or NATS can't write.",
            GraphLine(add_node_name(most(series(metric_names.TROUBLE), *_EACH, "kind")), "{{node}} {{kind}}"),
            steps=((1, "red"),),
        ),
        course(
            "Settle lag by node",
            "How long the oldest result has not been durable; from about 1 s on a node starts nothing: look at NATS.",
            GraphLine(add_node_name(most(series(metric_names.SETTLE_LAG), *_EACH)), "{{node}}"),
            unit="s",
            steps=((1, "red"),),
        ),
        course(
            "Copies that wait to be stored",
            "Retries and dead letters that NATS hasn't stored yet; with 64 of one project nothing more of it starts.",
            GraphLine(add_node_name(total(series(metric_names.PENDING_COPIES), *_EACH)), "{{node}}"),
            steps=((64, "red"),),
        ),
    )


def process() -> tuple[Panel, ...]:
    cpu = f"rate({PROCESS_CPU}[$__rate_interval])"
    return (
        course(
            "Nodes that there should be",
            "As the leader decides for an autoscaler (`scaling` = `hpa`), and the nodes that have joined; for long"
            " more than these: look at the autoscaler and its bounds.",
            GraphLine(most(series(metric_names.DESIRED_NODES)), "should be"),
            GraphLine(f"count({series(metric_names.SLOTS)})", "joined"),
            unit="short",
        ),
        course(
            "Processor",
            "Cores that a node's process uses; a node is one process and rarely uses more than one.",
            GraphLine(_of_process(cpu), "{{node}}"),
            unit="short",
            steps=((0.9, "yellow"),),
        ),
        course(
            "Memory",
            "Resident memory of a node's process; it should level off, as all buffers are bounded but queues seen.",
            GraphLine(_of_process(PROCESS_MEMORY), "{{node}}"),
            unit="bytes",
        ),
        course(
            "How late the figures are",
            "How long a node needs to look at all its queues once: gauges of projects are as old as that.",
            GraphLine(add_node_name(most(series(metric_names.ROUND), *_EACH)), "{{node}}"),
            unit="s",
            steps=((30, "yellow"),),
        ),
    )


def table() -> tuple[Panel, ...]:
    lease = (-1e9, "red"), (0.0, "yellow"), (1.0, "green")
    return (
        listing(
            "The nodes",
            "Each node with its partitions and the rest of its lease; a lease with 0 s left has fenced the node.",
            {"node": "Node", "instance": "Address", "version": "Version"},
            TableColumn("Partitions", total(series(metric_names.OWNED), "instance")),
            TableColumn("Up", most(series(metric_names.NODE), "node", "instance", "version"), "bool_yes_no"),
            TableColumn("Generation", most(series(metric_names.GENERATION), "instance")),
            TableColumn("Leads", most(series(metric_names.LEADER), "instance"), "bool_yes_no"),
            TableColumn("Lease left", least(series(metric_names.LEASE_LEFT), "instance"), "s", lease, 1),
            TableColumn("Renewed before", most(series(metric_names.LEASE_AGE), "instance"), "s", decimals=1),
            TableColumn("NATS", least(series(metric_names.CONNECTED, 'server="nats"'), "instance"), "bool_on_off"),
            TableColumn("Projects", most(series(metric_names.PROJECTS), "instance")),
            TableColumn(
                "Handled", total(rate(metric_names.OUTCOMES, 'outcome="handled"'), "instance"), "mps", decimals=1
            ),
            first="Partitions",
        ),
        listing(
            "Who owns which partition",
            "The owner of each partition and its epoch, the last sequence of its lane, and how far the lane is settled"
            " and purged; two rows for one partition are the previous and the present owner.",
            {"partition": "Partition", "node": "Node"},
            TableColumn("Epoch", _by_partition(metric_names.EPOCH)),
            TableColumn("End", _by_partition(metric_names.END_SEQUENCE)),
            TableColumn("Settled", _by_partition(metric_names.SETTLED_SEQUENCE)),
            TableColumn("Purged", _by_partition(metric_names.PURGED_SEQUENCE)),
            first="Partition",
            most_first=False,
        ),
    )


def _by_partition(metric: str) -> str:
    return most(add_node_name(most(series(metric), "partition", *_EACH)), "partition", "node")


def ownership() -> tuple[Panel, ...]:
    return (
        course(
            "Partitions owned",
            "Number of partitions by node; steps are rebalances, a gap is partitions without an owner.",
            GraphLine(add_node_name(total(series(metric_names.OWNED), *_EACH)), "{{node}}"),
            stacked=True,
        ),
        bars(
            "Rebalances",
            "Partitions that came or went in the time of each bar; lost ones were not handed off: a lease ended or etcd"
            " lost a key.",
            GraphLine(total(in_each_span(metric_names.MOVES), "how"), "{{how}}"),
        ),
        course(
            "Lease left",
            "How long a node may work without a renewal; it moves between half and whole, at 0 the node starts"
            " nothing.",
            GraphLine(add_node_name(least(series(metric_names.LEASE_LEFT), *_EACH)), "{{node}}"),
            unit="s",
        ),
        course(
            "Plan carried out",
            "The generation of the plan that each node has carried out; a node that stays behind can't acquire or"
            " release partitions.",
            GraphLine(add_node_name(most(series(metric_names.GENERATION), *_EACH)), "{{node}}"),
        ),
    )


def subscriptions() -> Panel:
    nodes = f'{metric_names.SUBSCRIPTION_NODES}{{env="$env"}}'
    return listing(
        "Subscriptions",
        "All subscriptions with their running nodes; the one without a name is the unnamed one. Empty if it is the only"
        " one.",
        {"subscription": "Subscription", "state": "State"},
        TableColumn("Nodes", most(nodes, "subscription", "state"), steps=((1, "green"),)),
        first="Subscription",
        most_first=False,
    )


def figures() -> tuple[Panel, ...]:
    return (
        figure(
            "Projects without a label",
            "Projects that share the label `other`, as only the busiest have their own; `metrics_projects` gives more.",
            or_zero(most(series(metric_names.PROJECTS_LEFT_OUT))),
        ),
        figure(
            "Specs rejected",
            "Topics whose spec isn't valid; the last good one stays in effect: `evenlane topics list` names them.",
            or_zero(most(series(metric_names.TOPICS_REFUSED))),
            steps=((1, "red"),),
        ),
        figure(
            "Values rejected",
            "Specs and accepted values that were found invalid in this time range, also those repaired since.",
            or_zero(total(increase(metric_names.TOPIC_REFUSALS))),
            decimals=0,
            steps=((1, "yellow"),),
        ),
    )


def _of_process(expr: str) -> str:
    return f"{expr} * on (job, instance) group_left (node) {series(metric_names.NODE)}"
