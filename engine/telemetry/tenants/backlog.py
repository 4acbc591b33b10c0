"""What waits of a label's priorities, and when it will be gone. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.stats.forecast import Load, Rates, gone_in
from evenlane.engine.telemetry.tenants.flows import NOTHING, Flow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.quota.topics.topic import Topic


_SECOND = 1_000_000_000


class QueueSample(NamedTuple):
    """A queue as it was found. `band` is its priority's rank; `head_at` None if it isn't known, then `place` may say
    where the head lies. `flow` is what is new since the last look; `indexed` are the messages whose place is
    known one by one.
    """

    project: str
    band: int
    backlog: int
    reason: str | None = None
    head_at: int | None = None
    place: tuple[LaneId, int] | None = None
    flow: Flow = NOTHING
    indexed: int = 0


class TenantBacklog:
    """What waits of one label and priority. `age_s` is for how long the oldest message has waited, None if that isn't
    known; `places` are where further heads lie, of each lane the first; `empty_in` is in how many seconds nothing waits
    any more (`inf`: never), None if that isn't known.
    """

    __slots__ = ("_oldest_at", "age_s", "backlog", "empty_in", "in_flight", "places", "rates", "reasons")

    def __init__(self) -> None:
        self.backlog = self.in_flight = 0
        self.age_s: float | None = None
        self._oldest_at: int | None = None
        self.places: dict[LaneId, int] = {}
        self.reasons: dict[str, int] = {}
        self.rates: Rates | None = None
        self.empty_in: float | None = None

    @property
    def is_at_rest(self) -> bool:
        """Whether nothing waits or runs, and nothing came or went while it was measured: so it stays until it does."""
        rates = self.rates
        still = rates is not None and not (rates.arriving or rates.handled or rates.failed)
        return still and not (self.backlog or self.in_flight or self.reasons)

    def add(self, look: QueueSample) -> None:
        self.backlog += look.backlog
        if look.reason is not None:
            self.reasons[look.reason] = self.reasons.get(look.reason, 0) + 1
        if look.head_at is not None:
            self.came(look.head_at)
        elif look.place is not None:
            lane, sequence = look.place
            self.places[lane] = min(sequence, self.places.get(lane, sequence))

    def came(self, at: int) -> None:
        """Something of it has waited since then, unix ns."""
        self._oldest_at = at if self._oldest_at is None else min(at, self._oldest_at)

    def aged(self, now: int) -> None:
        """At `now`, unix ns by the same clock, all is known that can be known."""
        if self._oldest_at is not None:
            self.age_s = max(0.0, (now - self._oldest_at) / _SECOND)
        elif not self.backlog:
            self.age_s = 0.0


def forecast(bands: Sequence[TenantBacklog], topic: Topic | None, max_group_qps: float) -> None:
    """Sets `empty_in` of a project's priorities. As higher ones go first inside a group, each is empty when it and all
    above it are. `topic` is the node's part of it.
    """
    measured = [each.rates for each in bands if each.rates is not None]
    handled, failed = sum(rates.handled for rates in measured), sum(rates.failed for rates in measured)
    reason = _most_frequent(bands)
    waiting, arriving = 0, 0.0
    for each in bands:
        waiting += each.backlog
        if not each.backlog:
            each.empty_in = 0.0
        if each.rates is None:
            continue
        arriving += each.rates.arriving
        if not each.backlog:
            continue
        rates = Rates(arriving, handled, failed, each.rates.seconds)
        seconds, _ = gone_in(Load(waiting, 0, rates, topic, reason, max_group_qps))
        each.empty_in = float("inf") if seconds is None else seconds


def _most_frequent(bands: Sequence[TenantBacklog]) -> str | None:
    """What holds up the whole: that something waits for a higher priority, or isn't due, says nothing of it."""
    counts: dict[str, int] = {}
    for each in bands:
        for reason, count in each.reasons.items():
            if reason not in {"not_due", "higher_priority"}:
                counts[reason] = counts.get(reason, 0) + count
    return max(counts, key=lambda reason: (counts[reason], reason), default=None)
