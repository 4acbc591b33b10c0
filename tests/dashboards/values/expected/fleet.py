"""The Fleet dashboard."""

from tests.dashboards.values import load
from tests.dashboards.values.expected import marks
from tests.dashboards.values.load import AT_S, GENERATION_S, LES, NODES, RANGE_S, SPAN_S
from tests.dashboards.values.promtool import Vector
from tests.dashboards.values.vectors import (
    Scope,
    age,
    backlog,
    by_address,
    gauge,
    grown,
    labelled,
    measured,
    most,
    named,
    outcomes,
    over_target,
    quantile,
    quotient,
    scalar,
    total,
    waiting,
    waiting_for_others,
    waits,
)

_GENERATION = 5 + AT_S / GENERATION_S


def expected(chosen: Scope) -> dict[str, Vector]:
    return {
        **_now(chosen), **_longest(chosen), **_rates(chosen), **_times(chosen), **_waits(chosen), **_loads(chosen),
        **_nodes(chosen), **_ownership(chosen), **_subscriptions(),
    }  # fmt: skip


def _handled(chosen: Scope, by: str = "") -> Vector:
    return total(chosen.lanes, lambda lane: lane.handled, by)


def _now(chosen: Scope) -> dict[str, Vector]:
    busy, slots = (sum(gauge(chosen, name).values()) for name in ("slots_busy", "slots"))
    return {
        "stat / Nodes / A": scalar(len(NODES)),
        "stat / Without owner / A": scalar(load.PARTITIONS - sum(len(node.epochs) for node in NODES.values())),
        "stat / Alerts firing / A": scalar(len(marks.FIRING)),
        "table / What fires / A": marks.table(),
        "stat / Age of target / A": most(measured(chosen.everywhere), over_target),
        "stat / Handled / A": _handled(chosen),
        "stat / Backlog / A": total(chosen.lanes, backlog),
        "stat / Slots busy / A": scalar(busy / slots),
        "stat / Settle lag / A": scalar(max(gauge(chosen, "settle_lag_seconds").values())),
        "stat / Projects without a label / A": scalar(max(gauge(chosen, "projects_left_out").values())),
        "stat / Specs rejected / A": scalar(max(gauge(chosen, "topics_refused").values())),
        "stat / Values rejected / A": scalar(grown(chosen, "topic_refusals", RANGE_S)),
    }


def _longest(chosen: Scope) -> dict[str, Vector]:
    place = "table / Projects that wait longest /"
    lanes = measured(chosen.lanes)  # the others have no age
    known = [lane for lane in lanes if lane.project != "other"]
    return {
        f"{place} A": most(measured(chosen.everywhere), over_target, "project"),
        f"{place} B": most(lanes, age, "project"),
        f"{place} C": total(lanes, backlog, "project"),
        f"{place} D": total(lanes, lambda lane: lane.handled, "project"),
        f"{place} E": total(known, lambda lane: lane.quota, "project"),
        f"{place} F": quotient(
            total((lane for lane in lanes if waiting_for_others(lane)), waiting_for_others, "project"),
            total(lanes, waiting, "project"),
        ),
    }


def _rates(chosen: Scope) -> dict[str, Vector]:
    return {
        "timeseries / Arrivals and ends / A": total(chosen.lanes, lambda lane: lane.arrived),
        "timeseries / Arrivals and ends / B": outcomes(chosen.lanes),
        "timeseries / Handled by priority / A": _handled(chosen, "priority"),
    }


def _times(chosen: Scope) -> dict[str, Vector]:
    return {
        f"timeseries / {title} / {ref}": labelled("priority", _quantiles(chosen, name, q))
        for title, name in (("Dwell time", "dwell"), ("Handling time", "handling"))
        for ref, q in (("A", 0.5), ("B", 0.99))
    }


def _quantiles(chosen: Scope, name: str, q: float) -> dict[object, float]:
    between: dict[object, list[float]] = {}
    for (priority, node), counts in load.BUCKETS[name].items():
        if node in chosen.nodes:
            known = between.setdefault(priority, [0.0] * len(counts))
            between[priority] = [one + other for one, other in zip(known, counts, strict=True)]
    return {priority: quantile(q, LES[name], counts) for priority, counts in between.items()}


def _waits(chosen: Scope) -> dict[str, Vector]:
    return {
        "timeseries / Messages that wait, by reason / A": waits(chosen.lanes, messages=True),
        "timeseries / Backlog by priority / A": total(chosen.lanes, backlog, "priority"),
        "timeseries / Latest against target, by priority / A": most(
            measured(chosen.everywhere), over_target, "priority"
        ),
    }


def _loads(chosen: Scope) -> dict[str, Vector]:
    def each(name: str) -> Vector:
        return named(chosen, gauge(chosen, name))

    def share(part: str, whole: str) -> Vector:
        wholes = gauge(chosen, whole)
        return named(chosen, {key: value / wholes[key] for key, value in gauge(chosen, part).items()})

    def growth(name: str) -> Vector:
        return named(chosen, {key: node.each_minute[name, ""] * SPAN_S / 60 for key, node in chosen.nodes.items()})

    place = "timeseries /"
    desired = gauge(chosen, "desired_nodes").values()
    troubles = {
        f"online {node.address} {node.name} {kind}": 0.0 for node in chosen.nodes.values() for kind in load.TROUBLES
    }
    return {
        f"{place} Slots busy by node / A": share("slots_busy", "slots"),
        f"{place} Payload budget used / A": share("payload_bytes", "payload_budget_bytes"),
        f"{place} Messages in the index / A": each("index_messages"),
        f"{place} Loop lag / A": each("loop_lag_seconds"),
        f"{place} Loop lag / B": growth("loop_blocked_seconds"),
        f"{place} Loop lag / C": growth("ended_blocked_seconds"),
        f"{place} Troubles / A": labelled("env instance node kind", troubles),
        f"{place} Settle lag by node / A": each("settle_lag_seconds"),
        f"{place} Copies that wait to be stored / A": each("pending_copies"),
        f"{place} Nodes that there should be / A": scalar(max(desired)) if desired else {},
        f"{place} Nodes that there should be / B": scalar(len(chosen.nodes)),
        f"{place} Processor / A": _of_process(chosen, load.CPU),
        f"{place} Memory / A": _of_process(chosen, load.MEMORY),
        f"{place} How late the figures are / A": each("sampling_round_seconds"),
    }


def _of_process(chosen: Scope, values: dict[str, float]) -> Vector:
    found = {f"{node.address} evenlane {node.name}": values[key] for key, node in chosen.nodes.items()}
    return labelled("instance job node", found)


def _nodes(chosen: Scope) -> dict[str, Vector]:
    place = "table / The nodes /"
    versions = {f"{node.address} {node.name} 1.0": 1.0 for node in chosen.nodes.values()}
    return {
        f"{place} A": by_address(chosen, {key: len(node.epochs) for key, node in chosen.nodes.items()}),
        f"{place} B": labelled("instance node version", versions),
        f"{place} C": by_address(chosen, dict.fromkeys(chosen.nodes, _GENERATION)),
        f"{place} D": by_address(chosen, {key: float(node.leads) for key, node in chosen.nodes.items()}),
        f"{place} E": by_address(chosen, gauge(chosen, "lease_left_seconds")),
        f"{place} F": by_address(chosen, gauge(chosen, "lease_age_seconds")),
        f"{place} G": by_address(chosen, dict.fromkeys(chosen.nodes, 1.0)),
        f"{place} H": by_address(chosen, gauge(chosen, "projects")),
        f"{place} I": _handled(chosen, "instance"),
    }


def _ownership(chosen: Scope) -> dict[str, Vector]:
    place = "timeseries /"
    owned = {key: float(len(node.epochs)) for key, node in chosen.nodes.items()}
    epochs = {f"{node.name} {part}": epoch for node in chosen.nodes.values() for part, epoch in node.epochs.items()}
    moves = {how: grown(chosen, "partition_moves", SPAN_S, how) for how in ("acquired", "released", "lost")}
    return {
        "table / Who owns which partition / A": labelled("node partition", epochs),
        **{
            f"table / Who owns which partition / {query}": labelled("node partition", _positions(chosen, behind))
            for query, behind in zip("BCD", load.POSITIONS.values(), strict=True)
        },
        f"{place} Partitions owned / A": named(chosen, owned),
        f"{place} Rebalances / A": labelled("how", moves),
        f"{place} Lease left / A": named(chosen, gauge(chosen, "lease_left_seconds")),
        f"{place} Plan carried out / A": named(chosen, dict.fromkeys(chosen.nodes, _GENERATION)),
    }


def _subscriptions() -> dict[str, Vector]:
    found = {
        tuple(sorted((("state", state), *((("subscription", name),) if name else ())))): float(nodes)
        for name, (state, nodes) in load.SUBSCRIPTIONS.items()
    }
    return {"table / Subscriptions / A": found}


def _positions(chosen: Scope, behind: int) -> dict[str, float]:
    """The sequence of each owned partition, by node and partition."""
    return {
        f"{node.name} {partition}": load.END * (partition + 1) - behind
        for node in chosen.nodes.values()
        for partition in node.epochs
    }
