"""The subscription of a script: when it is created, and by whom."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

SHARE = 0.25  # of the scripts
_EARLY = 0.3  # of these: created before the first put
_BROKEN_OFF = 0.5  # of these: creators die


class Audit(NamedTuple):
    """A named subscription. Its creation begins after `at` seconds; None: it is complete before anything else begins.
    Its nodes join when it is complete, each after its time in `joins`. As many creators die as `deaths` has times,
    each after its time; then the creation is repeated. All times are in seconds.
    """

    at: float | None
    joins: tuple[float, ...]
    deaths: tuple[float, ...]


def draw_audit(seed: int) -> Audit | None:
    """Drawn apart from all else, so that the scripts without a subscription don't depend on it."""
    chance = Random(f"subscriptions {seed}")
    if chance.random() >= SHARE:
        return None
    at = None if chance.random() < _EARLY else chance.choice((1.5, 5.0)) * chance.random()
    nodes = chance.choice((1, 2, 2))
    joins = tuple(chance.choice((0.0, 0.0, 2.0)) * chance.random() for _ in range(nodes))
    dying = chance.choice((1, 1, 2)) if chance.random() < _BROKEN_OFF else 0
    deaths = tuple(chance.choice((0.02, 0.1, 1.0)) * chance.random() for _ in range(dying))
    return Audit(at, joins, deaths)
