"""Expectations for the Delivery dashboard."""

from tests.prometheus import load
from tests.prometheus.expect import ONE, ZERO, Check, Span, by, one
from tests.prometheus.expected import common
from tests.prometheus.expected.common import INTERVAL_S, RANGE_S, by_node, grown, rate, share_of
from tests.prometheus.seen import BACKLOGGED, PRIORITIES, Seen

_FEW = Span(0.0, 1.5)  # messages of a project in the crowd
_CROWD = Span(0.0, float(load.CROWD))


def expected(seen: Seen) -> dict[str, Check]:
    return {**_first(seen), **_projects(seen), **_attempts(seen), **_ends(seen), **_times(seen)}


def _first(seen: Seen) -> dict[str, Check]:
    grew = common.ends(seen, RANGE_S)
    return {
        "stat / Success rate / A": one(share_of(seen.handled(), seen.started())),
        "stat / Retries / A": one(rate(seen.retried())),
        "stat / Dead letters / A": one(grew["dead"]),
        "stat / Expired / A": one(grew["expired"]),
        "stat / Dropped / A": one(grew["dropped"]),
        "stat / Maybe twice / A": one(grown(load.ONE_A_BEAT, RANGE_S)),
        "stat / Missing / A": one(grown(load.ONE_A_BEAT, RANGE_S)),
        "stat / Stray / A": one(grown(load.ONE_A_BEAT, RANGE_S)),
    }


def _projects(seen: Seen) -> dict[str, Check]:
    """Messages of the crowd may have been handled at the beginning of the range."""

    def table(spans: dict[str, Span], others: Span = ZERO) -> Check:
        return by("project", {**dict.fromkeys(load.TENANTS, ZERO), **spans, "other": _CROWD}, others=others)

    place = "table / Projects by what fails /"
    handled = {each: grown(seen.handled(each), RANGE_S) for each in load.TENANTS}
    tries = {each: seen.started(each) for each in ("failing", "hanging")}
    failed = {each: share_of(count - seen.handled(each), count) for each, count in tries.items()}
    tried = {each: ZERO for each in load.TENANTS if seen.handled(each)}
    return {
        f"{place} A": table({**handled, "aged": Span(0.0, 1.0)}, others=_FEW),
        f"{place} B": table({each: grown(seen.retried(each), RANGE_S) for each in ("failing", "hanging")}),
        f"{place} C": table({each: grown(seen.dead(each), RANGE_S) for each in ("failing", "rejected")}),
        f"{place} D": table({"expiring": grown(seen.expired(), RANGE_S)}),
        f"{place} E": table({"purged": grown(load.PURGED_A_SECOND, RANGE_S)}),
        f"{place} F": by("project", {**tried, **failed, "rejected": ONE}, others=ZERO),
        f"{place} G": table({"holes": grown(load.ONE_A_BEAT, RANGE_S)}),
    }


def _attempts(seen: Seen) -> dict[str, Check]:
    failed = {band: seen.started(priority=band) - seen.handled(priority=band) for band in PRIORITIES}
    shares = {band: share_of(failed[band], seen.started(priority=band)) for band in PRIORITIES}
    place = "timeseries /"
    return {
        f"{place} How attempts and messages end / A": by("outcome", common.ends(seen)),
        f"{place} Failed of attempts, by priority / A": by("priority", shares),
        f"{place} Retries, the most / A": by(
            "project", {each: rate(seen.retried(each)) for each in ("failing", "hanging")}
        ),
        f"{place} Dead letters, the most / A": by(
            "project", {each: rate(seen.dead(each)) for each in ("failing", "rejected")}
        ),
    }


def _ends(seen: Seen) -> dict[str, Check]:
    none, one_a_beat = dict.fromkeys(PRIORITIES, ZERO), grown(load.ONE_A_BEAT, INTERVAL_S)
    place = "timeseries /"
    return {
        f"{place} Dead letters over time / A": by("priority", {**none, "mid": grown(seen.dead(), INTERVAL_S)}),
        f"{place} Expired over time / A": by("priority", {**none, "mid": grown(seen.expired(), INTERVAL_S)}),
        f"{place} Dropped over time / A": by("priority", {**none, "mid": grown(load.PURGED_A_SECOND, INTERVAL_S)}),
        f"{place} Maybe handled twice, by cause / A": by("cause", {"crash": ZERO, "hung": one_a_beat, "void": ZERO}),
        f"{place} Missing and stray / A": one(one_a_beat),
        f"{place} Missing and stray / B": one(one_a_beat),
        f"{place} Copies that wait to be stored / A": by_node(seen, Span(0.0, 5.0)),
    }


def _times(seen: Seen) -> dict[str, Check]:
    """All priorities together: two in three wait for quota or slots, half hold their slot for 0.1 s."""
    long = Span(5.0, 300.0)
    count, slow = seen.started(), seen.handled(*load.SLOW) + seen.retried("hanging")
    long_waits = seen.handled(*BACKLOGGED, "holes")
    dwell = {"p50": long, "p90": long, "p99": long}
    handling = {"p50": Span(0.0, 1.0), "p90": Span(0.05, 0.5), "p99": Span(0.05, 1.0)}
    refs = dict(zip("ABC", dwell, strict=True))
    return {
        "heatmap / Dwell time / A": common.heat(count, count - long_waits, "2.5"),
        "heatmap / Handling time / A": common.heat(count, count - slow, "0.05"),
        **{f"timeseries / Dwell time, quantiles / {ref}": one(dwell[q]) for ref, q in refs.items()},
        **{f"timeseries / Handling time, quantiles / {ref}": one(handling[q]) for ref, q in refs.items()},
    }
