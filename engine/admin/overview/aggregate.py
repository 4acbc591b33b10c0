"""How parts of what waits and moves, on several nodes or of several priorities, add up. Pure."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from evenlane.engine.admin.overview.messages import Band

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_ASIDE = {"higher_priority", "not_due"}  # they say nothing of what holds up the whole


def together(bands: Iterable[Band]) -> Band:
    """Their sum: a group is on one node and has one priority, so counts add up; what isn't known of one isn't known of
    the sum. The order makes no difference.
    """
    each = list(bands)
    never = any(band.never for band in each)
    return Band(
        backlog=sum([band.backlog for band in each]),
        in_flight=sum([band.in_flight for band in each]),
        oldest_s=max([band.oldest_s for band in each if band.oldest_s is not None], default=None),
        arriving=added([band.arriving for band in each]),
        leaving=added([band.leaving for band in each]),
        gone_s=None if never else _last([band.gone_s for band in each]),
        never=never,
        reasons=_counted([band.reasons for band in each if band.reasons]),
    )


def main_reason(reasons: Mapping[str, int]) -> str | None:
    """What most of these queues wait for; what goes first or isn't due counts only where there is nothing else."""
    return min(reasons, key=lambda reason: (reason in _ASIDE, -reasons[reason], reason), default=None)


def added(rates: Sequence[float | None]) -> float | None:
    """None if one of them isn't known: the rest is less than the whole."""
    known = [rate for rate in rates if rate is not None]
    return fsum(known) if len(known) == len(rates) else None


def _last(seconds: Sequence[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return max(known, default=0.0) if len(known) == len(seconds) else None


def _counted(reasons: Iterable[Mapping[str, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in reasons:
        for reason, queues in each.items():
            counts[reason] = counts.get(reason, 0) + queues
    return dict(sorted(counts.items()))
