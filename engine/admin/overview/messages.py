"""How a node tells what it has: its answer to `ask.<env>.overview`, in JSON."""

from __future__ import annotations

import msgspec


class Band(msgspec.Struct, array_like=True, frozen=True):
    """One priority of a project, or of several. Rates in messages a second, None as long as they aren't known.

    `oldest_s` is for how long the oldest has waited, None if nothing waits or it isn't known; `gone_s` in how many
    seconds nothing waits any more, None if it isn't known or `never`; `reasons` counts queues by what they wait for. A
    band made from nothing adds nothing.
    """

    backlog: int = 0
    in_flight: int = 0
    oldest_s: float | None = None
    arriving: float | None = 0.0
    leaving: float | None = 0.0
    gone_s: float | None = 0.0
    never: bool = False
    reasons: dict[str, int] = {}


class Row(msgspec.Struct, array_like=True, frozen=True):
    """A project on one node; `bands` from the most to the least urgent. `state` and `qps` (msg/s) are those of its
    topic, of which the node has seen `revision`; None and 0 if it has none. `quota` is what the node may take of it.
    Whether the topic was `deleted` its state doesn't say.
    """

    project: str
    bands: list[Band]
    revision: int = 0
    state: str | None = None
    qps: float | None = None
    quota: float | None = None
    deleted: bool = False


class Rest(msgspec.Struct, array_like=True, frozen=True):
    """So many `projects` that have no row of their own, together."""

    projects: int
    bands: list[Band]


class ProcessVitals(msgspec.Struct, frozen=True):
    """How the node is, between whose terms there is none. Seconds; `lease_s` until nothing may start any more."""

    generation: int = 0
    slots: int = 0
    lease_s: float = 0.0
    settle_lag_s: float = 0.0
    loop_lag_s: float = 0.0


class NodeOverview(msgspec.Struct, frozen=True):
    """A node's answer. `reading` is of how many partitions it doesn't know yet all that waits there."""

    node: str
    rows: list[Row] = []
    rest: Rest | None = None
    vital: ProcessVitals | None = None
    reading: int = 0


def subject(env: str) -> str:
    """What the question is published to."""
    return f"ask.{env}.overview"
