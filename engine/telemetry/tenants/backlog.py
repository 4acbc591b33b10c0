"""Backlog of a label's priorities, and a forecast of when it is empty. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.records.backlog_answer import Rates
from evenlane.engine.core.stats.backlog_trend import is_stuck, lasting_reasons
from evenlane.engine.core.stats.forecast import ForecastInput, is_never, predict_end
from evenlane.engine.core.wire.reason_codes import INDIRECT
from evenlane.engine.telemetry.tenants.flows import NOTHING, TenantFlow

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.stats.backlog_trend import BacklogTrend
    from evenlane.quota.topics.topic import Topic


_SECOND = 1_000_000_000


class QueueSample(NamedTuple):
    """A queue at one moment. `band` is its priority's rank; `head_at` is None if unknown, and `place` may then say
    where the head is. `flow` is what is new since the last look; `indexed` counts messages that the node knows
    individually.
    """

    project: str
    band: int
    backlog: int
    reason: str | None = None
    head_at: int | None = None
    place: tuple[LaneId, int] | None = None
    flow: TenantFlow = NOTHING
    indexed: int = 0


class TenantBacklog:
    """Backlog of one label and priority. `age_s` is how long the oldest message has waited, None if unknown. `places`
    has, for each lane, the first of the heads whose age must still be read. `empty_in` is the forecast time until the
    backlog is empty, in s (`inf`: never), None if unknown.
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
        """Whether nothing waits or runs, and nothing came or went during the measurement."""
        rates = self.rates
        still = rates is not None and not (rates.arriving or rates.leaving)
        return still and not (self.backlog or self.in_flight or self.reasons)

    def add(self, look: QueueSample) -> None:
        self.backlog += look.backlog
        if look.reason is not None:
            self.reasons[look.reason] = self.reasons.get(look.reason, 0) + 1
        if look.head_at is not None:
            self.note_arrival(look.head_at)
        elif look.place is not None:
            lane, sequence = look.place
            self.places[lane] = min(sequence, self.places.get(lane, sequence))

    def note_arrival(self, at: int) -> None:
        """Note that a message has waited since then, in unix ns."""
        self._oldest_at = at if self._oldest_at is None else min(at, self._oldest_at)

    def note_age(self, now: int) -> None:
        """Compute the age at `now`, in unix ns by the same clock, once all heads are known that can be. If it is low,
        the reasons of the moment are dropped.
        """
        if self._oldest_at is not None:
            self.age_s = max(0.0, (now - self._oldest_at) / _SECOND)
        elif not self.backlog:
            self.age_s = 0.0
        self.reasons = lasting_reasons(self.reasons, self.age_s)


def forecast(
    bands: Sequence[TenantBacklog],
    topic: Topic | None,
    max_group_qps: float,
    trends: Sequence[BacklogTrend | None],
    now: int,
) -> None:
    """Set `empty_in` of a project's priorities. Within a group higher priorities go first, so a priority is empty when
    it and all higher ones are. `topic` is the node's part of the topic. `trends` are those of each priority with all
    higher ones; they note the backlogs at `now` (monotonic ns).
    """
    measured = [each.rates for each in bands if each.rates is not None]
    taken = sum(rates.taken for rates in measured)
    reason = _most_frequent(bands)
    waiting, arriving, oldest_s = 0, 0.0, 0.0
    for each, trend in zip(bands, trends, strict=True):
        waiting, oldest_s = waiting + each.backlog, max(oldest_s, each.age_s or 0.0)
        if trend is not None:
            trend.note(now, waiting)
        if not each.backlog:
            each.empty_in = 0.0
        if each.rates is None:
            continue
        arriving += each.rates.arriving
        if not each.backlog:
            continue
        rates = Rates(arriving=arriving, handled=taken, seconds=each.rates.seconds)
        grows = (trend is not None and trend.grows) or is_stuck(taken, oldest_s)
        load = ForecastInput(waiting, 0, rates, topic, reason, max_group_qps, grows)
        each.empty_in = math.inf if is_never(load) else predict_end(load)[0]


def _most_frequent(bands: Sequence[TenantBacklog]) -> str | None:
    """Return the main reason for the whole, None if there are only indirect ones."""
    counts: dict[str, int] = {}
    for each in bands:
        for reason, count in each.reasons.items():
            if reason not in INDIRECT:
                counts[reason] = counts.get(reason, 0) + count
    return max(counts, key=lambda reason: (counts[reason], reason), default=None)
