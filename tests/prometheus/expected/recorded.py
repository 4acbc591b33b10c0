"""Expectations for recording rules, over all nodes."""

from tests.prometheus import load
from tests.prometheus.expect import NEVER, ONE, ZERO, Check, Span, about, by, exactly, one
from tests.prometheus.expected import common
from tests.prometheus.seen import BACKLOGGED, OWN_LIMIT, WINDOW_S, Seen

_AGE = "env_project_priority:evenlane_oldest_message_age"
_TARGET = "priority:evenlane_oldest_message_age_target:seconds"


def expected(seen: Seen) -> dict[str, Check]:
    place = {each: f"{each} {common.BAND[each]}" for each in (*BACKLOGGED, "holes")}
    ages = {place[each]: seen.oldest(each) for each in place}
    late = {place[each]: common.over_target(seen, each) for each in place}
    low = seen.oldest("ranked")
    slots = seen.slots(*load.SLOW).over(len(seen.nodes) * load.SLOTS)
    return {
        f"{_AGE}_seconds:max": by("project priority", {**ages, "ranked low": low}, others=Span(0.0, 2.0)),
        f"{_AGE}:over_target": by(
            "project priority", {**late, "ranked low": low.over(common.TARGET_S["low"])}, others=Span(0.0, 0.04)
        ),
        "env_project_priority:evenlane_time_to_empty_seconds:max": by(
            "project priority", gone_in(seen), others=Span(0.0, 5.0), may=_BALANCED
        ),
        "env_project_priority:evenlane_stopped_queues:sum": by("project priority", {"paused mid": ONE}, others=ONE),
        "env_project:evenlane_offered_over_quota:ratio": by("project", offered(), others=Span(0.0, 0.2)),
        "env_project:evenlane_own_limit_queues:sum": by(
            "project", {**dict.fromkeys(OWN_LIMIT, ONE), "hot": Span(1.0, 4.0)}, others=ONE
        ),
        "env_project:evenlane_failed_attempts:ratio10m": by(
            "project",
            {
                "rejected": ONE,
                "failing": about(0.75, 0.15),
                "hanging": about(1 / 3, 0.25),
            },
        ),
        "env_job:evenlane_partitions_unowned:count": by("env job", {"online evenlane": ZERO}),
        "env:evenlane_slots_busy:ratio": by("env", {"online": Span(slots.low - 0.1, slots.high + 0.1)}),
        "env_project_outcome:evenlane_outcomes:increase10m": by(
            "project outcome",
            _ended(seen),
            others=Span(0.0, 1.5),  # one message of each project in the crowd
        ),
        **{f"{_TARGET} {band}": one(exactly(value)) for band, value in common.TARGET_S.items()},
        f"{_TARGET} -": one(exactly(600.0)),
        "evenlane:time_to_empty_target:seconds": one(exactly(3_600.0)),
    }


def _ended(seen: Seen) -> dict[str, Span]:
    """Ends in the window, by project and outcome."""
    ends = {
        "handled": {each: seen.handled(each) for each in load.TENANTS},
        "retried": {each: seen.retried(each) for each in load.TENANTS},
        "dead": {each: seen.dead(each) for each in load.TENANTS},
        "expired": {"expiring": seen.expired()},
        "dropped": {"purged": load.PURGED_A_SECOND},
    }
    due = {f"{project} {end}": ZERO for project in load.TENANTS for end in ends}
    due |= {
        f"{project} {end}": common.grown(value, WINDOW_S)
        for end, values in ends.items()
        for project, value in values.items()
    }
    return due | {"other handled": Span(0.0, float(load.CROWD)), "aged handled": Span(0.0, 1.0)}


# As much leaves as arrives, so the time is any, or unknown as long as the backlog doesn't grow all the time.
_BALANCED = (
    "expiring mid", "holes mid", "purged mid", *(f"{project} {band}" for project, band in load.VICTIMS.items()),
)  # fmt: skip


def gone_in(seen: Seen) -> dict[str, Span]:
    """Seconds until the backlog is empty, by project and priority. Low messages of `ranked` go after all high ones."""
    ranked = seen.gone_in("ranked", "high")
    measured = ("hot", load.BULK, load.GOLD, "ordered", "capped")
    return {
        **{f"{each} mid": seen.gone_in(each, "mid") for each in measured},
        "paused mid": NEVER,
        "aged low": about((load.AGED - 1) / load.AGED_QPS, 0.05),
        "ranked high": ranked,
        "ranked low": ranked + about(load.RANKED_LOW / load.RANKED_QPS, 0.5),
    }


def offered() -> dict[str, Span]:
    """Arrivals over quota. Backlogs that were put at once may count for half a minute."""
    return {
        **dict.fromkeys(load.VICTIMS, about(load.VICTIM_QPS / 100, 0.25)),
        "expiring": about(load.EXPIRING_A_SECOND / load.EXPIRING_QPS, 0.25),
        "holes": about((load.HOLES_QPS + load.ONE_A_BEAT) / load.HOLES_QPS, 0.5),
        "purged": about(load.PURGED_A_SECOND / 10.0, 0.3),
        "hot": Span(0.0, load.HOT_PUT / load.HOT_QPS),
        "aged": Span(0.0, load.AGED / load.AGED_QPS),
        "ranked": Span(0.0, (load.RANKED_HIGH + load.RANKED_LOW) / load.RANKED_QPS),
        "paused": Span(0.0, load.PAUSED / 10.0),
    }
