"""Expectations for the Fairness dashboard: `gold` has three times the weight of `bulk`, and both demand all slots."""

from tests.prometheus import load
from tests.prometheus.expect import ZERO, Check, Span, about, by, one
from tests.prometheus.expected import common
from tests.prometheus.expected.common import rate
from tests.prometheus.expected.recorded import offered
from tests.prometheus.seen import OWN_LIMIT, Seen

_FAIR = about(1.0, 0.25)
_WITHIN = tuple(each for each in load.TENANTS if each not in OWN_LIMIT)


def expected(seen: Seen) -> dict[str, Check]:
    return {**_first(seen), **_table(seen), **_graphs(seen)}


def _first(seen: Seen) -> dict[str, Check]:
    slots = {each: load.BULK_S * seen.handled(each) for each in load.SLOW}
    return {
        "stat / Least share / A": one(Span(0.75, 1.0)),
        "stat / Largest share / A": one(Span(1.0, 1.25)),
        "stat / Fairness index / A": one(Span(0.95, 1.0)),
        "stat / Starved / A": one(ZERO),
        "stat / At own limit / A": one(Span(len(OWN_LIMIT), len(OWN_LIMIT) + 1)),
        "stat / Most slots / A": one(about(slots[load.GOLD] / sum(slots.values()), 0.15)),
        "stat / Dwell within quota / A": one(_dwell_within(seen)),
    }


def _dwell_within(seen: Seen) -> Span:
    """Among the projects within their quota, only the two competing ones wait, since their backlogs were put."""
    slow = seen.handled(load.BULK, load.GOLD)
    return about((seen.waited - 6) * slow / seen.started(*_WITHIN), 0.4)


def _table(seen: Seen) -> dict[str, Check]:
    def table(spans: dict[str, Span], others: Span) -> Check:
        return by("project", spans, others=others)

    ended = {each: rate(seen.started(each)) for each in load.TENANTS if seen.started(each)}
    means = {
        **{each: Span(0.0, 3.0) for each in ended},
        **{each: about(seen.waited - 6, 0.35) for each in ("hot", load.BULK, load.GOLD, "ranked", "ordered", "capped")},
        "holes": seen.oldest("holes"),
    }
    hangs = Span(load.ACK_WAIT_S * load.ONE_A_BEAT, 2.5 * load.ACK_WAIT_S * load.ONE_A_BEAT)
    held = {each: about(load.BULK_S, 0.25) if each in load.SLOW else Span(0.0, 0.1) for each in ended}
    place = "table / Projects by slots used /"
    return {
        f"{place} A": table({**{each: seen.slots(each) for each in load.TENANTS}, "hanging": hangs}, Span(0.0, 0.1)),
        f"{place} B": table(dict.fromkeys(load.SLOW, _FAIR), _FAIR),
        f"{place} C": table(offered(), Span(0.0, 0.2)),
        f"{place} D": table(common.handled(seen), Span(0.0, 0.2)),
        f"{place} E": table(common.quotas(), common.CROWD_QUOTA),
        f"{place} F": table({each: seen.waiting(each) for each in load.TENANTS}, ZERO),
        f"{place} G": table(means, Span(0.0, 3.0)),
        f"{place} H": table({**held, "hanging": hangs.over(3 * load.ONE_A_BEAT)}, Span(0.0, 0.1)),
        f"{place} I": table(dict.fromkeys((load.BULK, load.GOLD), Span(0.9, 1.0)), Span(0.0, 1.0)),
    }


def _graphs(seen: Seen) -> dict[str, Check]:
    most = {each: seen.slots(each) for each in load.SLOW}
    late = about(seen.waited - 6, 0.35)
    at_limit = seen.started(*OWN_LIMIT)
    slow = seen.handled("hot", "ranked", "ordered", "capped")
    place = "timeseries /"
    return {
        f"{place} Share got over share due, the least / A": by("project", {}, others=Span(0.75, 1.05), most=10),
        f"{place} Share got over share due, the most / A": by("project", {}, others=Span(0.95, 1.25), most=10),
        f"{place} Slots used, the most / A": by("project", most, others=Span(0.0, 2.0), most=10),
        f"{place} Offered over quota, the most / A": by(
            "project", {"expiring": offered()["expiring"]}, others=Span(0.0, 5_000.0), most=10
        ),
        f"{place} Dwell time, noisy and others / A": one(_dwell_within(seen)),
        f"{place} Dwell time, noisy and others / B": one(about((seen.waited - 6) * slow / at_limit, 0.4)),
        f"{place} Dwell time within quota, the longest / A": by(
            "project", {load.BULK: late, load.GOLD: late}, others=Span(0.0, 1.0), most=10
        ),
        f"{place} Waits because of others / A": by(
            "project", dict.fromkeys((load.BULK, load.GOLD), Span(0.8, 1.2)), others=Span(0.0, 0.5), most=10
        ),
    }
