"""History of the last two minutes by tenant, so that a new viewer sees more than the present second. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from evenlane.engine.admin.history.merge import PastSecond
from evenlane.engine.telemetry.tenants.history import FIGURES, KEPT_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from evenlane.engine.admin.history.merge import Figures

_KEPT_NS = KEPT_S * 1_000_000_000


class RecentHistory:
    """Recent figures of those tenants that are among the busiest when it is read."""

    def __init__(self, looks: Iterable[PastSecond] = ()) -> None:
        self._looks = deque(looks)

    def copy(self) -> RecentHistory:
        """Return a copy, for a thread to write."""
        return RecentHistory(self._looks)

    def put_before(self, past: Iterable[PastSecond]) -> None:
        """Add what nodes remember, and replace all that isn't newer than it."""
        looks = deque(past)
        if looks:
            looks.extend(look for look in self._looks if look.at > looks[-1].at)
            self._looks = looks

    def add(self, overview: Mapping[str, Any], at: int) -> None:
        """Add an overview of the time `at`, in unix ns. Also drops entries from the future, after a change of the
        clock.
        """
        tenants = {tenant["project"]: _figures(tenant) for tenant in overview["tenants"]}
        self._looks.append(PastSecond(at, _figures(overview["totals"]), tenants))
        while not at - _KEPT_NS < self._looks[0].at <= at:
            self._looks.popleft()

    def document(self) -> dict[str, Any]:
        """Return times `at` in unix ms, with a figure each for `totals` and each of `tenants`, `null` if unknown."""
        looks = self._looks
        projects: Iterable[str] = looks[-1].tenants if looks else ()
        return {
            "at": [look.at // 1_000_000 for look in looks],
            "totals": _columns(look.totals for look in looks),
            "tenants": {project: _columns(look.tenants.get(project) for look in looks) for project in projects},
        }


def _figures(part: Mapping[str, Any]) -> Figures:
    return tuple(part.get(name) for name in FIGURES)


def _columns(rows: Iterable[Figures | None]) -> dict[str, list[Any]]:
    known = [row or (None,) * len(FIGURES) for row in rows]
    return {name: [row[place] for row in known] for place, name in enumerate(FIGURES)}
