"""The series that nodes export under the load, in the notation of `promtool test rules`."""

import re
from collections.abc import Callable, Iterator

from tests.dashboards.values import load
from tests.dashboards.values.load import AT_S, LANES, NODES, STEP_S, Lane, Node

TIMES = range(0, AT_S + STEP_S, STEP_S)
Value = Callable[[float], float]


def input_series() -> list[dict[str, str]]:
    return [{"series": name, "values": values} for name, values in _all()]


def exported() -> set[tuple[str, frozenset[str]]]:
    """The names of the series with their labels, as a node's page must have them."""
    names = (re.fullmatch(r"(\w+){(.*)}", each["series"]) for each in input_series())
    found = {(name[1], frozenset(re.findall(r"(\w+)=", name[2])) - {"instance", "job"}) for name in names if name}
    return {(name, labels) for name, labels in found if name != "up"}


def _all() -> Iterator[tuple[str, str]]:
    for lane in LANES:
        yield from _of_lane(lane)
    for (project, key), lanes in _by(lambda lane: (lane.project, lane.node)).items():
        if project != "other":
            yield _series("quota_rate", key, _constant(sum(lane.quota for lane in lanes)), project=project)
        if lanes[0].fair is not None:
            yield _series("fair_share_ratio", key, _constant(lanes[0].fair), project=project)
    for key, node in NODES.items():
        yield from _of_node(key, node)
        yield from _histograms(key)


def _of_lane(lane: Lane) -> Iterator[tuple[str, str]]:
    known = {"project": lane.project, "priority": lane.priority}

    def series(name: str, value: Value, **labels: str) -> tuple[str, str]:
        return _series(name, lane.node, value, **known, **labels)

    for outcome in load.OUTCOMES:
        yield series("outcomes_total", _growing(getattr(lane, outcome)), outcome=outcome)
    first, each = lane.ages if lane.start or lane.growth else (lane.dwell_s, 0.0)
    yield series("attempts_total", _growing(lane.attempts))
    yield series("arrived_messages_total", _growing(lane.arrived))
    yield series("missing_messages_total", _growing(lane.missing))
    yield series("tenant_handling_seconds_total", _growing(lane.attempts * lane.ran_s))
    yield series("tenant_dwell_seconds_total", lambda t: lane.attempts * (first * t + each * t * t / 2))
    yield series("backlog_messages", lane.backlog)
    yield series("in_flight_messages", _constant(lane.attempts * lane.ran_s))
    if lane.measured:
        yield series("oldest_message_age_seconds", lane.age)
        yield series("arrival_rate", _constant(lane.arrived))
        yield series("drain_rate", _constant(lane.leaves))
        if lane.project != "other":
            yield series("time_to_empty_seconds", lambda t: _empty_in(lane, t))
    for place, (reason, share) in enumerate(lane.reasons.items()):
        yield series("waiting_seconds_total", _growing(share), reason=reason)
        yield series(
            "waiting_message_seconds_total",
            lambda t, share=share: share * (lane.start * t + lane.growth * t * t / 2),
            reason=reason,
        )
        if not place:
            yield series("waiting_queues", _constant(1.0), reason=reason)


def _empty_in(lane: Lane, t: float) -> float:
    if not lane.backlog(t):
        return 0.0
    shrinks = lane.taken - lane.arrived
    return lane.backlog(t) / shrinks if shrinks > 0 else float("inf")


def _of_node(key: str, node: Node) -> Iterator[tuple[str, str]]:
    yield _series("node_info", key, _constant(1.0), node=node.name, version="1.0")
    gauges = {
        **node.gauges, "leader": node.leads, "partitions": load.PARTITIONS, "partitions_owned": len(node.epochs),
    }  # fmt: skip
    for name, value in gauges.items():
        yield _series(name, key, _constant(float(value)))
    yield _series("plan_generation", key, lambda t: 5 + t // load.GENERATION_S)
    yield _series("connected", key, _constant(1.0), server="nats")
    for kind in load.TROUBLES:
        yield _series("node_trouble", key, _constant(0.0), kind=kind)
    for partition, epoch in node.epochs.items():
        yield _series("partition_epoch", key, _constant(float(epoch)), partition=str(partition))
        for position, behind in load.POSITIONS.items():
            sequence = load.END * (partition + 1) - behind
            yield _series(f"partition_{position}_sequence", key, _constant(float(sequence)), partition=str(partition))
    for subscription, (state, count) in load.SUBSCRIPTIONS.items() if node.leads else ():
        yield _series("subscription_nodes", key, _constant(count), subscription=subscription, state=state)
    names = {name for name, _ in node.each_minute}
    for name in sorted(names):
        label, values = load.LABELS.get(name, ("", ("",)))
        for value in values:
            each = node.each_minute.get((name, value), 0.0)
            yield _series(f"{name}_total", key, _growing(each / 60), **({label: value} if label else {}))
    yield _raw(f"up{{{_where(key)}}}", _constant(1.0))
    yield _raw(f"process_cpu_seconds_total{{{_where(key)}}}", _growing(load.CPU[key]))
    yield _raw(f"process_resident_memory_bytes{{{_where(key)}}}", _constant(load.MEMORY[key]))
    yield _raw(f"process_start_time_seconds{{{_where(key)}}}", _constant(0.0))


def _histograms(key: str) -> Iterator[tuple[str, str]]:
    for name, rates in load.BUCKETS.items():
        for (priority, node), between in rates.items():
            if node == key:
                for place, le in enumerate((*load.LES[name], "+Inf")):
                    below = _growing(sum(between[: place + 1]))
                    yield _series(f"{name}_seconds_bucket", key, below, priority=priority, le=str(le))


def _by(key_of: Callable[[Lane], tuple[str, str]]) -> dict[tuple[str, str], list[Lane]]:
    found: dict[tuple[str, str], list[Lane]] = {}
    for lane in LANES:
        found.setdefault(key_of(lane), []).append(lane)
    return found


def _constant(value: float) -> Value:
    return lambda _: value


def _growing(each_second: float) -> Value:
    return lambda t: each_second * t


def _series(name: str, key: str, value: Value, **labels: str) -> tuple[str, str]:
    inside = "".join(f'{label}="{text}",' for label, text in labels.items())
    return _raw(f'evenlane_{name}{{env="online",{inside}{_where(key)}}}', value)


def _where(key: str) -> str:
    return f'instance="{NODES[key].address}",job="evenlane"'


def _raw(series: str, value: Value) -> tuple[str, str]:
    values = [value(t) for t in TIMES]
    if len(set(values)) == 1 and values[0] != float("inf"):  # promtool can't repeat that
        return series, f"{_text(values[0])}x{len(values) - 1}"
    return series, " ".join(map(_text, values))


def _text(value: float) -> str:
    return "Inf" if value == float("inf") else repr(float(value))
