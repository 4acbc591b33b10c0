"""Expectations for the Tenant dashboard: all panels of the hot project, and special ones of others."""

from tests.prometheus import load
from tests.prometheus.expect import NOTHING, ONE, ZERO, Check, Span, about, by, exactly, one
from tests.prometheus.expected import common
from tests.prometheus.expected.common import INTERVAL_S, rate, share_of
from tests.prometheus.expected.recorded import gone_in
from tests.prometheus.seen import PRIORITIES, Seen

PROJECT = "hot"
_NONE = dict.fromkeys(PRIORITIES, ZERO)
_NO_ENDS = dict.fromkeys(("handled", "retried", "dead", "expired", "dropped"), ZERO)
_REASONS = "timeseries / What it waits for, as shares of the time / A"
_ENDS = "timeseries / How attempts and messages end / A"
_DEAD_OR_GONE = "timeseries / Dead letters, expired and dropped / A"


def expected(seen: Seen) -> dict[str, Check]:
    """All panels of `PROJECT`."""
    return {**_first(seen), **_waits(seen), **_rates(seen), **_time(seen), **_fails(seen)}


def _first(seen: Seen) -> dict[str, Check]:
    return {
        "stat / Backlog / A": one(seen.backlog("hot", "mid")),
        "stat / Oldest / A": one(seen.oldest("hot")),
        "stat / Age of target / A": one(common.over_target(seen, "hot")),
        "stat / Gone in / A": one(gone_in(seen)["hot mid"]),
        "stat / Arrives / A": one(ZERO),
        "stat / Handled / A": one(about(load.HOT_QPS)),
        "stat / Quota used / A": one(about(1.0, 0.1)),
        "stat / Got of due / A": one(about(1.0, 0.25)),
    }


def _waits(seen: Seen) -> dict[str, Check]:
    backlog, gone = seen.backlog("hot", "mid"), gone_in(seen)["hot mid"]
    targets = {band: exactly(value) for band, value in common.TARGET_S.items()}
    quota, rest = Span(0.85, 1.0), Span(0.0, 0.15)  # samples of four queues in ten rounds
    reasons = {"quota": Span(0.75 * backlog.low - 50, 1.15 * backlog.high + 50)}
    place = "timeseries /"
    return {
        f"{place} Backlog by priority / A": by("priority", {**_NONE, "mid": backlog}),
        f"{place} Age of the oldest, and its target / A": by("priority", {**_NONE, "mid": seen.oldest("hot")}),
        f"{place} Age of the oldest, and its target / B": by("priority", targets),
        f"{place} Forecast / A": by("priority", {**_NONE, "mid": gone}),
        f"{place} Messages that wait, by reason / A": by("reason", reasons, others=Span(0.0, 0.2 * backlog.high)),
        _REASONS: by("reason", {"quota": quota}, others=rest),
        f"{place} Queues that wait now / A": by("reason", {"quota": Span(2.0, 4.0)}, others=Span(0.0, 2.0)),
    }


def _rates(seen: Seen) -> dict[str, Check]:
    hot = about(load.HOT_QPS)
    nodes = {
        node.address: exactly(load.HOT_QPS / 4 * _groups(seen, node)) for node in seen.nodes if _groups(seen, node)
    }
    place = "timeseries /"
    return {
        f"{place} Offered, handled and quota / A": one(ZERO),
        f"{place} Offered, handled and quota / B": one(hot),
        f"{place} Offered, handled and quota / C": one(about(load.HOT_QPS, 0.02)),
        f"{place} Rates of the forecast / A": one(ZERO),
        f"{place} Rates of the forecast / B": one(hot),
        f"{place} Handled by priority / A": by("priority", {**_NONE, "mid": hot}),
        f"{place} Quota by node / A": by("instance", nodes),
    }


def _groups(seen: Seen, node: object) -> int:
    return sum(seen.owner("hot", group) == node for group in range(4))


def _time(seen: Seen) -> dict[str, Check]:
    nodes = {node.address: about(1.0, 0.25) for node in seen.nodes if _groups(seen, node)}
    place = "timeseries /"
    return {
        f"{place} Dwell time, mean / A": by("priority", {"mid": about(seen.waited - 6, 0.35)}),
        f"{place} Handling time, mean / A": by("priority", {"mid": Span(0.0, 0.1)}),
        f"{place} Slots used / A": one(Span(0.0, 2.0)),
        f"{place} Slots used / B": one(Span(0.0, 5.0)),
        f"{place} Share got over share due / A": by("instance", nodes),
        f"{place} Waits because of others / A": by("reason", {}, others=Span(0.0, 0.6)),
    }


def _fails(seen: Seen) -> dict[str, Check]:
    ends = {**_NO_ENDS, "handled": about(load.HOT_QPS)}
    return {
        _ENDS: by("outcome", ends),
        _DEAD_OR_GONE: by("outcome", dict.fromkeys(("dead", "expired", "dropped"), ZERO)),
    }


def of_others(seen: Seen) -> dict[str, dict[str, Check]]:
    """Panels of other projects with other expectations, by project and place."""
    return {**_waiting(seen), **_ending(seen), **_at_ease()}


def _waiting(seen: Seen) -> dict[str, dict[str, Check]]:
    """Projects that wait, each for another reason."""
    whole, half = Span(0.9, 1.0), about(0.5, 0.1)
    return {
        "paused": {
            _REASONS: by("reason", {"paused": ONE}),
            "stat / Backlog / A": one(exactly(load.PAUSED)),
            "stat / Gone in / A": one(exactly(31_536_000.0)),
            "stat / Handled / A": one(ZERO),
            "stat / Quota used / A": one(ZERO),
        },
        "delayed": {
            _REASONS: by("reason", {"not_due": whole}, others=Span(0.0, 0.1)),
            "stat / Backlog / A": one(Span(0.0, 2.0)),
            "stat / Arrives / A": one(rate(load.ONE_A_BEAT)),
        },
        "ordered": {_REASONS: by("reason", {"ordered": whole}, others=Span(0.0, 0.1))},
        "capped": {
            _REASONS: by("reason", {"concurrency": whole}, others=Span(0.0, 0.1)),
            "timeseries / Slots used / A": one(about(1.0, 0.2)),
            "timeseries / Slots used / B": one(ONE),
        },
        "ranked": {
            _REASONS: by("reason", {"quota": half, "higher_priority": half}, others=Span(0.0, 0.05)),
            "timeseries / Backlog by priority / A": by(
                "priority", {"high": seen.backlog("ranked", "high"), "mid": ZERO, "low": exactly(load.RANKED_LOW)}
            ),
            "stat / Quota used / A": one(about(1.0, 0.2)),
        },
        load.GOLD: {
            _REASONS: by("reason", {common.OTHERS: whole}, others=Span(0.0, 0.1)),
            "timeseries / Slots used / A": one(seen.slots(load.GOLD)),
            "timeseries / Handling time, mean / A": by("priority", {"mid": about(load.BULK_S, 0.25)}),
            "stat / Got of due / A": one(about(1.0, 0.15)),
        },
        "aged": {
            "stat / Oldest / A": one(seen.oldest("aged")),
            "stat / Age of target / A": one(common.over_target(seen, "aged")),
        },
    }


def _ending(seen: Seen) -> dict[str, dict[str, Check]]:
    """Projects with messages that aren't handled at the first attempt."""
    return {
        "failing": {
            _ENDS: by("outcome", {
                **_NO_ENDS, "handled": rate(seen.handled("failing")), "retried": rate(seen.retried("failing")),
                "dead": rate(seen.dead("failing")),
            }),
            "stat / Arrives / A": one(rate(2 * load.ONE_A_BEAT + seen.retried("failing"))),
        },
        "expiring": {
            _ENDS: by("outcome", {**_NO_ENDS, "handled": rate(load.EXPIRING_QPS), "expired": rate(seen.expired())}),
            _DEAD_OR_GONE: by(
                "outcome", {"dead": ZERO, "dropped": ZERO, "expired": common.grown(seen.expired(), INTERVAL_S)}
            ),
            "stat / Quota used / A": one(about(1.0, 0.35)),
        },
        "hanging": {
            _ENDS: by("outcome", {**_NO_ENDS, "handled": rate(2 * load.ONE_A_BEAT), "retried": rate(load.ONE_A_BEAT)}),
        },
        "holes": {
            _ENDS: by("outcome", {**_NO_ENDS, "handled": rate(load.HOLES_QPS)}),
            "stat / Arrives / A": one(rate(load.HOLES_QPS + load.ONE_A_BEAT)),
        },
        "purged": {
            _ENDS: by("outcome", {**_NO_ENDS, "dropped": rate(load.PURGED_A_SECOND)}),
            _DEAD_OR_GONE: by(
                "outcome", {"dead": ZERO, "expired": ZERO, "dropped": common.grown(load.PURGED_A_SECOND, INTERVAL_S)}
            ),
        },
    }  # fmt: skip


def _at_ease() -> dict[str, dict[str, Check]]:
    """Projects with almost no backlog."""
    return {
        "victim-0": {
            "stat / Backlog / A": one(Span(0.0, 5.0)),
            "stat / Handled / A": one(rate(load.VICTIM_QPS)),
            "stat / Quota used / A": one(share_of(load.VICTIM_QPS, 100.0)),
            "timeseries / Dwell time, mean / A": by("priority", {"high": common.QUICK}),
        },
        "nobody": {
            "stat / Backlog / A": one(ZERO),
            "stat / Got of due / A": NOTHING,
            _REASONS: NOTHING,
            _ENDS: NOTHING,
        },
    }
