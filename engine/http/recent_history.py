"""History of the last two minutes by tenant, so that a new viewer sees more than the present second. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_KEPT_NS = 120 * 1_000_000_000
_KINDS = ("backlog", "arriving", "leaving")


class _Overview(NamedTuple):
    at: int  # unix ns
    tenants: dict[str, tuple[Any, ...]]
    totals: tuple[Any, ...]


class RecentHistory:
    """Recent figures of those tenants that are among the busiest when it is read."""

    def __init__(self, looks: Iterable[_Overview] = ()) -> None:
        self._looks = deque(looks)

    def copy(self) -> RecentHistory:
        """Return a copy, for a thread to write."""
        return RecentHistory(self._looks)

    def add(self, overview: Mapping[str, Any], at: int) -> None:
        """Add an overview of the time `at`, in unix ns. Also drops entries from the future, after a change of the
        clock.
        """
        tenants = {tenant["project"]: _figures(tenant) for tenant in overview["tenants"]}
        self._looks.append(_Overview(at, tenants, _figures(overview["totals"])))
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


def _figures(part: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(part[kind] for kind in _KINDS)


def _columns(rows: Iterable[tuple[Any, ...] | None]) -> dict[str, list[Any]]:
    known = [row or (None,) * len(_KINDS) for row in rows]
    return {kind: [row[place] for row in known] for place, kind in enumerate(_KINDS)}
