"""Expectations for the Fleet dashboard."""

from evenlane.engine.base.troubles import KINDS
from tests.prometheus import load
from tests.prometheus.expect import NOTHING, ONE, ZERO, Check, Span, about, by, exactly, one
from tests.prometheus.expected import common
from tests.prometheus.expected.alerting import firing
from tests.prometheus.expected.common import by_node, rate
from tests.prometheus.seen import BACKLOGGED, PRIORITIES, Node, Seen

_IN_BETWEEN = 600.0  # messages of a partition between two looks at its lane, a few seconds apart


def expected(seen: Seen) -> dict[str, Check]:
    return {**_first(seen), **_tables(seen), **_rates(seen), **_saturation(seen), **_nodes(seen), **_ownership(seen)}


def _first(seen: Seen) -> dict[str, Check]:
    slots = seen.slots(*load.SLOW).over(len(seen.nodes) * load.SLOTS)
    most = max(len(_projects(seen, node)) for node in seen.nodes)
    return {
        "stat / Nodes / A": one(exactly(len(seen.nodes))),
        "timeseries / Nodes that there should be / A": NOTHING,  # only with an autoscaler
        "timeseries / Nodes that there should be / B": one(exactly(len(seen.nodes))),
        "table / Subscriptions / A": NOTHING,  # only with named ones
        "stat / Without owner / A": one(ZERO),
        "stat / Alerts firing / A": one(exactly(len(firing(seen)))),
        "stat / Age of target / A": one(common.over_target(seen, "aged")),
        "stat / Handled / A": one(rate(seen.handled())),
        "stat / Backlog / A": one(seen.backlogs()),
        "stat / Slots busy / A": one(Span(slots.low - 0.1, slots.high + 0.1)),
        "stat / Settle lag / A": one(common.QUIET),
        "stat / Projects without a label / A": one(exactly(most - load.LABELS)),
        "stat / Specs rejected / A": one(ONE),
        "stat / Values rejected / A": one(common.grown(0.5 / load.BEAT_S, common.RANGE_S)),
    }


def _projects(seen: Seen, node: Node) -> set[str]:
    """The projects with queues on the node."""
    one_group = {each for each in (*load.TENANTS, *load.CROWDED) if each != "hot" and seen.owner(each) == node}
    return one_group | ({"hot"} if any(seen.owner("hot", group) == node for group in range(4)) else set())


def _tables(seen: Seen) -> dict[str, Check]:
    """Nine of the ten latest projects are known: all others wait for a moment only."""
    latest = (*BACKLOGGED, "holes")

    def longest(spans: dict[str, Span], others: Span) -> Check:
        return by("project", {each: spans[each] for each in latest}, others=others, most=10)

    quotas, handled = common.quotas(), common.handled(seen)
    competing = dict.fromkeys((load.BULK, load.GOLD), Span(0.9, 1.0))
    place = "table / Projects that wait longest /"
    fire = [" ".join(each.get(label, "") for label in ("alertname", "project", "instance")) for each in firing(seen)]
    return {
        "table / What fires / A": by("alertname project instance", dict.fromkeys(fire, ONE)),
        f"{place} A": longest({each: common.over_target(seen, each) for each in latest}, Span(0.0, 0.04)),
        f"{place} B": longest({each: seen.oldest(each) for each in latest}, Span(0.0, 2.0)),
        f"{place} C": longest({each: seen.waiting(each) for each in latest}, Span(0.0, 20.0)),
        f"{place} D": longest(handled, Span(0.0, 2 * load.VICTIM_QPS)),
        f"{place} E": longest(quotas, Span(0.0, 1_000.0)),
        f"{place} F": by("project", competing, others=Span(0.0, 0.15), most=10),
    }


def _rates(seen: Seen) -> dict[str, Check]:
    handled = {band: rate(seen.handled(priority=band)) for band in PRIORITIES}
    late = {"high": common.over_target(seen, "ranked"), "low": common.over_target(seen, "aged")}
    late["mid"] = common.over_target(seen, "hot")
    place = "timeseries /"
    return {
        f"{place} Arrivals and ends / A": one(rate(arrived(seen))),
        f"{place} Arrivals and ends / B": by("outcome", common.ends(seen)),
        f"{place} Handled by priority / A": by("priority", handled),
        f"{place} Dwell time / A": by("priority", common.dwell("p50")),
        f"{place} Dwell time / B": by("priority", common.dwell("p99")),
        f"{place} Handling time / A": by("priority", common.handling("p50")),
        f"{place} Handling time / B": by("priority", common.handling("p99")),
        f"{place} Messages that wait, by reason / A": by("reason", common.waiting_by_reason(seen)),
        f"{place} Backlog by priority / A": by("priority", {band: seen.backlogs(band) for band in PRIORITIES}),
        f"{place} Latest against target, by priority / A": by("priority", late),
    }


def arrived(seen: Seen) -> float:
    """Messages per second, including retries."""
    victims = len(load.VICTIMS) * load.VICTIM_QPS
    ones = 6 * load.ONE_A_BEAT  # rejected, failing (two), delayed, hanging (two)
    return victims + ones + load.EXPIRING_A_SECOND + holes() + load.PURGED_A_SECOND + seen.retried()


def holes() -> float:
    """Messages per second of `holes`: handled ones, and one per beat that vanishes."""
    return load.HOLES_QPS + load.ONE_A_BEAT


def _saturation(seen: Seen) -> dict[str, Check]:
    place = "timeseries /"
    slots = {node.name: common.busy(seen, node).over(load.SLOTS) for node in seen.nodes}
    index = {node.name: seen.backlogs(node=node) for node in seen.nodes}
    troubles = {f"{node.name} {kind}": ZERO for node in seen.nodes for kind in KINDS}
    return {
        f"{place} Slots busy by node / A": by_node(seen, slots),
        f"{place} Payload budget used / A": by_node(seen, Span(1e-5, 0.01)),
        f"{place} Messages in the index / A": by_node(seen, index),
        f"{place} Loop lag / A": by_node(seen, common.QUIET),
        f"{place} Loop lag / B": by_node(seen, ZERO),
        f"{place} Loop lag / C": by_node(seen, ZERO),
        f"{place} Troubles / A": by("node kind", troubles),
        f"{place} Settle lag by node / A": by_node(seen, common.QUIET),
        f"{place} Copies that wait to be stored / A": by_node(seen, Span(0.0, 5.0)),
        f"{place} Processor / A": by_node(seen, Span(0.005, 1.5)),
        f"{place} Memory / A": by_node(seen, Span(2e7, 1e9)),
        f"{place} How late the figures are / A": by_node(seen, Span(0.5, 2.0)),
    }


def _nodes(seen: Seen) -> dict[str, Check]:
    def each(spans: dict[str, Span] | Span) -> Check:
        return by_node(seen, spans, "instance")

    place = "table / The nodes /"
    return {
        f"{place} A": each(_owned(seen)),
        f"{place} B": by("node instance", {f"{node.name} {node.address}": ONE for node in seen.nodes}),
        f"{place} C": each(exactly(seen.generation)),
        f"{place} D": each({node.name: exactly(node.leads) for node in seen.nodes}),
        f"{place} E": each(Span(2.0, 10.0)),
        f"{place} F": each(Span(0.0, 6.0)),
        f"{place} G": each(ONE),
        f"{place} H": each({node.name: exactly(len(_projects(seen, node))) for node in seen.nodes}),
        f"{place} I": each({node.name: rate(seen.handled(node=node)) for node in seen.nodes}),
    }


def _owned(seen: Seen) -> dict[str, Span]:
    return {node.name: exactly(len(node.epochs)) for node in seen.nodes}


def _ownership(seen: Seen) -> dict[str, Check]:
    epochs = {f"{part} {node.name}": exactly(epoch) for node in seen.nodes for part, epoch in node.epochs.items()}
    lanes = {f"{part} {node.name}": seen.lanes[part] for node in seen.nodes for part in node.epochs}
    # what is settled is purged within a second, so the first message that NATS has tells both
    gone = {place: about(lane.first - 1, 0.0, _IN_BETWEEN) for place, lane in lanes.items()}
    table = "table / Who owns which partition"
    return {
        f"{table} / A": by("partition node", epochs),
        f"{table} / B": by(
            "partition node", {place: about(lane.last, 0.0, _IN_BETWEEN) for place, lane in lanes.items()}
        ),
        f"{table} / C": by("partition node", gone),
        f"{table} / D": by("partition node", gone),
        "timeseries / Partitions owned / A": by_node(seen, _owned(seen)),
        "timeseries / Rebalances / A": by("how", dict.fromkeys(("acquired", "released", "lost"), ZERO)),
        "timeseries / Lease left / A": by_node(seen, Span(2.0, 10.0)),
        "timeseries / Plan carried out / A": by_node(seen, exactly(seen.generation)),
    }
