"""Small oracle of what Prometheus answers: sums, extremes and quotients of a load's figures, by label."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.dashboards.values import load
from tests.dashboards.values.load import AT_S, LANES, NODES, WINDOW_S, Lane, Node
from tests.dashboards.values.promtool import Vector

MIDDLE_S = AT_S - WINDOW_S / 2
"""A figure that grows evenly has its mean of the window at this time."""

Figure = Callable[[Lane], float]


class Scope(NamedTuple):
    """What somebody has chosen on a dashboard: `lanes` of the chosen projects and nodes; `everywhere`, the same on all
    nodes, as recording rules see it; and the chosen `nodes`.
    """

    lanes: Sequence[Lane]
    everywhere: Sequence[Lane]
    nodes: Mapping[str, Node]


def scope(project: str | None = None, node: str | None = None) -> Scope:
    everywhere = [lane for lane in LANES if project in (None, lane.project)]
    lanes = [lane for lane in everywhere if node in (None, lane.node)]
    return Scope(lanes, everywhere, {key: each for key, each in NODES.items() if node in (None, key)})


def labelled(names: str, values: Mapping[object, float]) -> Vector:
    """A vector of `values` by the labels `names`, both separated by blanks."""
    return {
        tuple(sorted(zip(names.split(), str(key).split(" "), strict=True))): float(value)
        for key, value in values.items()
    }


def scalar(value: float) -> Vector:
    return {(): float(value)}


NOTHING: Vector = {}


def total(lanes: Iterable[Lane], figure: Figure, by: str = "") -> Vector:
    return _aggregate(sum, lanes, figure, by)


def most(lanes: Iterable[Lane], figure: Figure, by: str = "") -> Vector:
    return _aggregate(max, lanes, figure, by)


def least(lanes: Iterable[Lane], figure: Figure, by: str = "") -> Vector:
    return _aggregate(min, lanes, figure, by)


def _aggregate(how: Callable[[list[float]], float], lanes: Iterable[Lane], figure: Figure, by: str) -> Vector:
    found: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for lane in lanes:
        found.setdefault(labels_of(lane, by), []).append(figure(lane))
    return {labels: float(how(values)) for labels, values in found.items()}


def labels_of(lane: Lane, by: str) -> tuple[tuple[str, str], ...]:
    known = {"project": lane.project, "priority": lane.priority, "instance": NODES[lane.node].address}
    return tuple(sorted((name, known[name]) for name in by.split()))


def measured(lanes: Iterable[Lane]) -> list[Lane]:
    return [lane for lane in lanes if lane.measured]


def quotient(parts: Vector, wholes: Vector) -> Vector:
    """Where the whole is above 0."""
    return {labels: part / wholes[labels] for labels, part in parts.items() if wholes.get(labels, 0) > 0}


def or_zero(vector: Vector) -> Vector:
    return vector or scalar(0)


# ---- figures of a lane


def attempts(lane: Lane) -> float:
    return lane.attempts


def slots(lane: Lane) -> float:
    """Slots used on average, by Little's law."""
    return lane.attempts * lane.ran_s


def dwelt(lane: Lane) -> float:
    """Seconds per second that its messages had waited, in the mean of the window."""
    return lane.attempts * lane.dwell(MIDDLE_S)


def backlog(lane: Lane) -> float:
    return lane.backlog(AT_S)


def age(lane: Lane) -> float:
    return lane.age(AT_S)


def over_target(lane: Lane) -> float:
    return lane.age(AT_S) / load.TARGETS_S[lane.priority]


def outcomes(lanes: Sequence[Lane], seconds: float = 1.0, of: Sequence[str] = load.OUTCOMES) -> Vector:
    """Ends by outcome."""
    if not lanes:
        return NOTHING
    return labelled("outcome", {each: sum(getattr(lane, each) for lane in lanes) * seconds for each in of})


def waits(lanes: Iterable[Lane], *, messages: bool = False, of: Sequence[str] = ()) -> Vector:
    """Heads that wait, or the messages behind them, by reason; only the reasons `of`, if there are any."""
    found: dict[object, float] = {}
    for lane in lanes:
        for reason, share in lane.reasons.items():
            if not of or reason in of:
                found[reason] = found.get(reason, 0) + share * (lane.backlog(MIDDLE_S) if messages else 1)
    return labelled("reason", found)


def waiting(lane: Lane) -> float:
    return sum(lane.reasons.values())


def waiting_for_others(lane: Lane) -> float:
    return sum(share for reason, share in lane.reasons.items() if reason in load.COMPETES)


def quantile(q: float, les: Sequence[float], between: Sequence[float]) -> float:
    """The quantile of a histogram with `between` observations between two bounds, even between them; the last finite
    bound, if it is above that.
    """
    rank = q * sum(between)
    for first, last, count in zip((0.0, *les), (*les, les[-1]), between, strict=True):
        if count >= rank:
            return first + (last - first) * rank / count
        rank -= count
    raise AssertionError("a quantile is among the observations")


# ---- figures of nodes


def gauge(chosen: Scope, name: str) -> dict[str, float]:
    """The gauge by node."""
    return {key: node.gauges[name] for key, node in chosen.nodes.items() if name in node.gauges}


def named(chosen: Scope, values: Mapping[str, float]) -> Vector:
    """Values by node, with the labels of a panel that adds the node's name."""
    return labelled(
        "env instance node", {f"online {node.address} {node.name}": values[key] for key, node in chosen.nodes.items()}
    )


def by_address(chosen: Scope, values: Mapping[str, float]) -> Vector:
    return labelled("instance", {node.address: values[key] for key, node in chosen.nodes.items()})


def grown(chosen: Scope, name: str, seconds: float, value: str | None = None) -> float:
    """The growth of a counter of the nodes; of one value of its label, if given."""
    return sum(
        each * seconds / 60
        for node in chosen.nodes.values()
        for (counter, label), each in node.each_minute.items()
        if counter == name and value in (None, label)
    )
