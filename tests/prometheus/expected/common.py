"""Expectations for several dashboards."""

from collections.abc import Mapping

from tests.prometheus import load
from tests.prometheus.expect import ZERO, Check, Span, about, by, exactly, total
from tests.prometheus.seen import PRIORITIES, Node, Seen

TARGET_S = {"high": 60.0, "mid": 600.0, "low": 3_600.0}
BAND = {
    **dict.fromkeys(load.TENANTS, "mid"),
    **load.VICTIMS,
    "aged": "low",
    "ranked": "high",
}
"""The priority with most messages of each project."""

OTHERS = "fairness|handlers_busy|headroom"
RANGE_S, INTERVAL_S = 11, 10  # of a dashboard, and between two points of its graphs
QUIET = Span(0.0, 0.9)  # s of lag on a healthy node
QUICK = Span(0.0, 0.25)  # s of wait of a message without a reason to wait


def rate(value: float) -> Span:
    """Messages per second, counted by the handlers' ledger, while metrics are sampled each second."""
    return about(value, 0.15, 0.35) if value else ZERO


def handled(seen: Seen) -> dict[str, Span]:
    """Handled messages per second, by project."""
    return {project: rate(seen.handled(project)) for project in load.TENANTS}


def over_target(seen: Seen, project: str) -> Span:
    return seen.oldest(project).over(TARGET_S[BAND[project]])


def quotas() -> dict[str, Span]:
    known = {"hot": load.HOT_QPS, "aged": load.AGED_QPS, "ranked": load.RANKED_QPS, "expiring": load.EXPIRING_QPS}
    known |= {"holes": load.HOLES_QPS, "paused": 10.0, "purged": 10.0, **dict.fromkeys(load.VICTIMS, 100.0)}
    return {project: about(known.get(project, 1_000.0), 0.02) for project in load.TENANTS}


CROWD_QUOTA = exactly(load.CROWD_QPS)


def ends(seen: Seen, seconds: float | None = None) -> dict[str, Span]:
    """Ends by outcome, per second or within `seconds`."""
    values = {"handled": seen.handled(), "retried": seen.retried(), "dead": seen.dead(), "expired": seen.expired()}
    values["dropped"] = load.PURGED_A_SECOND
    return {each: _over(value, seconds) for each, value in values.items()}


def _over(value: float, seconds: float | None) -> Span:
    return rate(value) if seconds is None else grown(value, seconds)


def grown(value: float, seconds: float) -> Span:
    """The growth of a counter in `seconds` at `value` per second."""
    return about(value * seconds, 0.2, 2 * value) if value else ZERO


def by_node(seen: Seen, spans: Mapping[str, Span] | Span, label: str = "node") -> Check:
    """A check of `spans` by node, or of the same span for each node."""
    each = {node.name: spans if isinstance(spans, Span) else spans[node.name] for node in seen.nodes}
    if label == "instance":
        return by(label, {node.address: each[node.name] for node in seen.nodes})
    return by(label, each)


def dwell(q: str) -> dict[str, Span]:
    """High and low are messages of victims, except that one in five high ones waits for its quota; most mid ones belong
    to the hot tenant and the two competing projects.
    """
    long = Span(5.0, 300.0)
    if q == "p50":
        return {"high": QUICK, "mid": long, "low": QUICK}
    return {"high": long, "mid": long, "low": Span(0.0, 1.0)}


def handling(q: str) -> dict[str, Span]:
    """Half of the mid messages hold their slot for a tenth of a second."""
    if q == "p50":
        return {**dict.fromkeys(PRIORITIES, QUICK), "mid": Span(0.0, 1.0)}
    return {"high": QUICK, "mid": Span(0.05, 1.0), "low": QUICK}


def busy(seen: Seen, node: Node) -> Span:
    """Busy slots at an instant: competing projects use all but the headroom for lighter tenants."""
    if node == seen.contended:
        return Span(0.4 * load.SLOTS, float(load.SLOTS))
    return Span(0.0, 5.0)


def waiting_by_reason(seen: Seen) -> dict[str, Span]:
    """The number of waiting messages by reason."""
    backlog = seen.backlog
    competing = total([backlog(load.BULK, "mid"), backlog(load.GOLD, "mid")])
    hot = backlog("hot", "mid")
    own = total([backlog("aged", "low"), backlog("ranked", "high"), backlog("holes", "mid")])
    return {
        "quota": Span(0.75 * hot.low + 0.85 * own.low - 20, 1.15 * (hot.high + own.high) + 20),
        OTHERS: Span(0.85 * competing.low - 50, 1.15 * (competing.high + 0.2 * hot.high) + 50),
        "paused": about(load.PAUSED, plus=load.PURGED_A_SECOND),
        "higher_priority": about(load.RANKED_LOW),
        "ordered": about(backlog("ordered", "mid").high, 0.15, 4),
        "concurrency": about(backlog("capped", "mid").high, 0.15, 4),
        "not_due": ZERO,
    }


def share_of(part: float, whole: float) -> Span:
    return about(part / whole, 0.15, 0.01) if whole else ZERO


def heat(count: float, quick: float, le: str) -> Check:
    """A check of a histogram's cumulative buckets per second: the last has all, and `le` has the quick ones."""
    return by("le", {"+Inf": rate(count), le: rate(quick)}, others=Span(0.0, rate(count).high))
