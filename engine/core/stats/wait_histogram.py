"""The buckets in which nodes count how long messages waited until their handler began."""

from evenlane.engine.core.stats.histogram import BOUNDS_S as _COARSE

_LEAST_S, _MOST_S = 0.001, 30 * 86_400.0
_STEPS = 4  # buckets per doubling of the wait, so that values read from them are at most 9.5 % off


def _bounds() -> tuple[float, ...]:
    """A geometric series, plus the bounds that Prometheus gets, so that its buckets are sums of these."""
    fine = {*_COARSE}
    step = 0
    while (bound := _LEAST_S * 2 ** (step / _STEPS)) <= _MOST_S:
        fine.add(round(bound, 6))
        step += 1
    return tuple(sorted(fine))


WAIT_BOUNDS_S = _bounds()
"""Upper bounds in seconds, inclusive; bucket 0 begins at 0, and there is one more bucket beyond the last."""

WAIT_BOUNDS = tuple(int(bound * 1_000_000_000) for bound in WAIT_BOUNDS_S)
"""The bounds in ns."""
