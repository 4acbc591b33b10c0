"""What stood at one moment, for whoever writes it down."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.metrics.condition import condition
from evenlane.engine.metrics.fairness import Seen

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from evenlane.engine.engine import Engine
    from evenlane.engine.metrics.condition import Condition
    from evenlane.engine.metrics.flows import Flow
    from evenlane.engine.metrics.histogram import Counted, Histogram
    from evenlane.engine.metrics.standing import Standing
    from evenlane.engine.metrics.tenants import Place, Tenants
    from evenlane.engine.metrics.waits import Key


class OfTenants(NamedTuple):
    """See `Tenants`: by label and band, by label, or by (label, band, reason)."""

    table: Mapping[Place, Standing] = {}
    counted: Mapping[Place, Flow] = {}
    seconds: Mapping[Key, float] = {}
    message_seconds: Mapping[Key, float] = {}
    quotas: Mapping[str, float] = {}
    usage: Seen = Seen()
    left_out: int = 0
    round_s: float = 0.0


class Snapshot(NamedTuple):
    """Nothing of it changes while it is written down. `dwell` and `handling` are by band; `counters` the node's, by
    name; `moves` of partitions, by how; `refused` wishes at present, `refusals` counts them by where;
    `troubles` are the kinds of those at present; `blocked_s` is for how long in all the event loop was blocked.
    """

    env: str
    node: str
    version: str
    priorities: tuple[str, ...] = ()
    tenants: OfTenants = OfTenants()
    dwell: tuple[Counted, ...] = ()
    handling: tuple[Counted, ...] = ()
    condition: Condition | None = None
    counters: Mapping[str, int] = {}
    moves: Mapping[str, int] = {}
    refused: int = 0
    refusals: Mapping[str, int] = {}
    troubles: Collection[str] = ()
    blocked_s: float = 0.0


def snapshot(engine: Engine) -> Snapshot:
    """On the loop, where all this is kept: copies cost little, writing them down costs more."""
    tenants, times = engine.tenants, engine.times
    refused, refusals = engine.refused
    seen = Snapshot(
        engine.settings.env, engine.id, engine.version, condition=condition(engine),
        counters=vars(engine.counters).copy(), moves=engine.moves.copy(), refused=refused, refusals=refusals,
        troubles=engine.troubles.current(), blocked_s=engine.keeper.blocked_s,
    )  # fmt: skip
    if tenants is None or times is None:
        return seen
    return seen._replace(
        priorities=tenants.priorities, tenants=of_tenants(tenants), dwell=_seen(times.dwell),
        handling=_seen(times.handling),
    )  # fmt: skip


def of_tenants(tenants: Tenants) -> OfTenants:
    waits = tenants.waits
    return OfTenants(
        tenants.table.copy(), tenants.counted.copy(), waits.seconds.copy(), waits.message_seconds.copy(),
        tenants.quotas, tenants.usage.seen(), tenants.left_out, tenants.round_s,
    )  # fmt: skip


def _seen(histograms: Iterable[Histogram]) -> tuple[Counted, ...]:
    return tuple(histogram.seen() for histogram in histograms)
