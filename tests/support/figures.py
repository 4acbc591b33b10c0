"""Compares figures of surfaces with a ledger's own. Pure: tests/support/test_figures.py shows that it finds errors."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SECOND = 1_000_000_000
_LAG_NS = 3 * _SECOND  # a node looks once a second, later on a busy machine
_STEP_NS = _SECOND // 20
_TOLERANCE = 0.01
_DIGITS = 0.001  # surfaces round rates to a thousandth

Figures = dict[str, float]
"""Figures of a project by name. A figure that a surface doesn't have is missing."""


class Measured(NamedTuple):
    """Rates that a surface showed to someone who asked between `asked` and `answered` (ns since boot). They are over
    one of `lengths`, in seconds.
    """

    rates: Figures
    asked: int
    answered: int
    lengths: Sequence[float]


def different_counts(expected: Mapping[str, float], surfaces: Mapping[str, Figures]) -> list[str]:
    """Return a sentence for each count of a surface that isn't the ledger's."""
    return [
        f"{surface} has {name} {shown:g}, and the ledger {expected[name]:g}"
        for surface, figures in surfaces.items()
        for name, shown in figures.items()
        if name in expected and shown != expected[name]
    ]


def different_rates(events: Mapping[str, Sequence[int]], surface: str, measured: Measured) -> list[str]:
    """Return a sentence for each rate that differs by more than 1 % from that of the ledger. `events` has the sorted
    times (ns since boot) of what is counted.

    A surface doesn't tell when exactly its measurement ended, so each end from `_LAG_NS` before the question until the
    answer is right. With a steady load, this makes no difference. At each end of the measurement, one whole message
    more or less may be in it.
    """
    found = []
    for name, shown in measured.rates.items():
        if name not in events:
            continue
        rates = [*_rates(events[name], measured)]
        whole = 1 / min(measured.lengths)
        lowest, highest = min(rates) * (1 - _TOLERANCE) - whole, max(rates) * (1 + _TOLERANCE) + whole
        if not lowest - _DIGITS <= shown <= highest + _DIGITS:
            found.append(
                f"{surface} has {name} {shown:g}/s, and the ledger between {min(rates):.4g}/s and {max(rates):.4g}/s"
            )
    return found


def _rates(events: Sequence[int], measured: Measured) -> Iterator[float]:
    """Yield the ledger's rates over all intervals that the surface may have measured."""
    for end in range(measured.asked - _LAG_NS, measured.answered + 1, _STEP_NS):
        for seconds in measured.lengths:
            first = bisect_left(events, end - round(seconds * _SECOND))
            yield (bisect_left(events, end) - first) / seconds
