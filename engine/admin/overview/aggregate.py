"""Sums backlogs and rates over nodes and priorities. Pure."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from evenlane.engine.admin.overview.messages import Band

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def merge_bands(bands: Iterable[Band]) -> Band:
    """Return the sum. A queue is on one node and has one priority, so counts add up. A figure that is unknown for one
    band is unknown for the sum. The order of the bands makes no difference.
    """
    each = list(bands)
    never = any(band.never for band in each)
    return Band(
        backlog=sum([band.backlog for band in each]),
        in_flight=sum([band.in_flight for band in each]),
        oldest_s=max([band.oldest_s for band in each if band.oldest_s is not None], default=None),
        arriving=add_rates([band.arriving for band in each]),
        leaving=add_rates([band.leaving for band in each]),
        handled=add_rates([band.handled for band in each]),
        failed=add_rates([band.failed for band in each]),
        dead=add_rates([band.dead for band in each]),
        expired=add_rates([band.expired for band in each]),
        gone_s=None if never else _last([band.gone_s for band in each]),
        never=never,
        reasons=_count_reasons([band.reasons for band in each if band.reasons]),
    )


def add_rates(rates: Sequence[float | None]) -> float | None:
    """Return the sum, None if a rate is unknown: the others' sum would be too low."""
    known = [rate for rate in rates if rate is not None]
    return fsum(known) if len(known) == len(rates) else None


def _last(seconds: Sequence[float | None]) -> float | None:
    known = [value for value in seconds if value is not None]
    return max(known, default=0.0) if len(known) == len(seconds) else None


def _count_reasons(reasons: Iterable[Mapping[str, int]]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in reasons:
        for reason, queues in each.items():
            counts[reason] = counts.get(reason, 0) + queues
    return dict(sorted(counts.items()))
