"""Rates and trends of each label and priority, measured from round to round. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.stats.forecast import add_rates
from evenlane.engine.telemetry.metric_names import OTHER
from evenlane.engine.telemetry.tenants.flows import GrowthRates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenlane.engine.core.records.backlog_answer import Rates
    from evenlane.engine.core.stats.backlog_trend import BacklogTrend
    from evenlane.engine.telemetry.tenants.backlog import TenantBacklog
    from evenlane.engine.telemetry.tenants.flows import TenantFlow

Place = tuple[str, int]
"""A label and a band."""


class Paces:
    """Measures places over rounds. `looked` is when the last round began to look, monotonic ns: what has come since
    then isn't counted, however long the round took.

    Invariant: what is known of a place was measured under the present circumstances: `clear` and `forget` discard the
    rest.
    """

    def __init__(self, bands: int) -> None:
        self._bands = bands
        self._known: dict[Place, GrowthRates] = {}
        self.looked = 0
        self._since: int | None = None  # the first look under the present circumstances

    def __contains__(self, place: Place) -> bool:
        return place in self._known

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        self._known.clear()
        self._since = None

    def end_round(self, looked: int) -> None:
        self.looked = looked
        if self._since is None:
            self._since = looked

    def forget(self, label: str) -> None:
        for band in range(self._bands):
            self._known.pop((label, band), None)

    def measure(
        self, place: Place, now: int, counted: TenantFlow, round_ns: int, *, is_new: bool = False
    ) -> Rates | None:
        """Measure at `now` (monotonic ns). Returns None until there is an earlier sample. Of a new place, earlier looks
        have found nothing.
        """
        pace = self._known.get(place)
        if pace is None:
            pace = self._known[place] = GrowthRates()
            if is_new and self._since is not None:
                pace.note_nothing(self._since, self.looked)
        elif pace.at < self.looked:
            pace.note_rest(self.looked)
        return pace.measure(now, counted, round_ns)

    def rates_of(self, label: str, table: Mapping[Place, TenantBacklog]) -> Rates | None:
        """Return the rates of all priorities together as of the last round, None while one is unknown. Rounds skip a
        backlog at rest, whose rates have been zero ever since.
        """
        found: list[Rates] = []
        for band in range(self._bands):
            tenant_backlog, pace = table.get((label, band)), self._known.get((label, band))
            if tenant_backlog is None or tenant_backlog.rates is None:
                return None
            rates = tenant_backlog.rates
            if pace is not None and tenant_backlog.is_at_rest:
                rates = pace.prolong(rates, self.looked)
            found.append(rates)
        return add_rates(found)

    def measure_long(self, label: str) -> Rates | None:
        """Return the rates of all priorities together, over a minute to one and a half if the node has been counting
        for as long; None otherwise, or for the label of all other projects.
        """
        paces = [self._known.get((label, band)) for band in range(self._bands)]
        rates = [found for pace in paces if pace is not None and (found := pace.measure_long(self.looked)) is not None]
        return add_rates(rates) if label != OTHER and len(rates) == len(paces) else None

    def trends(self, label: str) -> list[BacklogTrend | None]:
        """Return the trends of the backlogs of each priority with all higher ones."""
        paces = [self._known.get((label, band)) for band in range(self._bands)]
        return [None if pace is None else pace.trend for pace in paces]

    def grows(self, label: str) -> bool:
        """Return whether the backlog has grown all the time over the last half minute."""
        trend = self.trends(label)[-1]
        return trend is not None and trend.grows
