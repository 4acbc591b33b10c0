"""Messages of the overview: a node's answer on `ask.<cluster>.overview`, in JSON."""

from __future__ import annotations

import msgspec

RATES = ("arriving", "leaving", "handled", "failed", "dead", "expired")
"""The fields of `Band` that are rates."""


class Band(msgspec.Struct, array_like=True, frozen=True):
    """One priority of a project, or of several. Rates are messages per second, None while unknown.

    `failed` includes `dead`; `leaving` is all that leaves the queues, `dropped` messages too.
    `oldest_s` is how long the oldest message has waited, None if none waits or it is unknown. `gone_s` is the forecast
    time until the backlog is empty, in s; None if unknown or `never`. `reasons` counts queues by wait reason. A default
    band is the neutral element of the sum.
    """

    backlog: int = 0
    in_flight: int = 0
    oldest_s: float | None = None
    arriving: float | None = 0.0
    leaving: float | None = 0.0
    gone_s: float | None = 0.0
    never: bool = False
    reasons: dict[str, int] = {}
    handled: float | None = 0.0
    failed: float | None = 0.0
    dead: float | None = 0.0
    expired: float | None = 0.0


class Row(msgspec.Struct, array_like=True, frozen=True):
    """A project on one node. `bands` run from most to least urgent. `state` and `qps` (msg/s) are its topic's as of
    `revision`; None and 0 if the node knows no topic. `quota` is what the node may take of it, in msg/s. `deleted` says
    whether the topic was deleted, which `state` doesn't show; `pushed`, whether an endpoint handles it. `error` is the
    last one; `failing_s` is since when (s) every attempt has failed, None if one has succeeded, or none was made.
    `groups` (0: unknown) and `spread` say in which partitions it is.
    """

    project: str
    bands: list[Band]
    revision: int = 0
    state: str | None = None
    qps: float | None = None
    quota: float | None = None
    deleted: bool = False
    pushed: bool = False
    error: str = ""
    failing_s: float | None = None
    groups: int = 0
    spread: int = 1


class Rest(msgspec.Struct, array_like=True, frozen=True):
    """The sum of `projects` projects that have no row of their own."""

    projects: int
    bands: list[Band]


class ProcessVitals(msgspec.Struct, frozen=True):
    """Condition of the node, None between two sessions. Times are seconds; `lease_s` is what is left of the lease."""

    generation: int = 0
    slots: int = 0
    lease_s: float = 0.0
    settle_lag_s: float = 0.0
    loop_lag_s: float = 0.0


class NodeOverview(msgspec.Struct, frozen=True):
    """A node's answer. `reading` counts partitions whose backlog isn't fully known yet."""

    node: str
    rows: list[Row] = []
    rest: Rest | None = None
    vital: ProcessVitals | None = None
    reading: int = 0


def subject(cluster: str) -> str:
    """Return the subject of overview requests."""
    return f"ask.{cluster}.overview"
