"""The subscription of a script: when it is created, and by whom."""

from __future__ import annotations

from random import Random
from typing import NamedTuple

SHARE = 0.25  # of the scripts
_EARLY = 0.3  # of these: created before the first put
_BROKEN_OFF = 0.5  # of these: creators die
_RESET = 0.6  # of these: reset at least once


class ResetAt(NamedTuple):
    """A reset that begins `at` seconds after the creation, to what was stored `ago` seconds before; None: to all that
    is stored, negative: to new messages. The process that resets dies after each of `deaths` seconds, and another one
    repeats it.
    """

    at: float
    ago: float | None
    deaths: tuple[float, ...]


class Audit(NamedTuple):
    """A named subscription. Its creation begins after `at` seconds; None: it is complete before anything else begins.
    Its nodes join when it is complete, each after its time in `joins`. As many creators die as `deaths` has times,
    each after its time; then the creation is repeated. Then it is reset, perhaps several times. All times are in
    seconds.
    """

    at: float | None
    joins: tuple[float, ...]
    deaths: tuple[float, ...]
    resets: tuple[ResetAt, ...] = ()


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


def draw_resets(seed: int) -> tuple[ResetAt, ...]:
    """Drawn apart from all else, so that the rest of a script doesn't depend on them."""
    chance = Random(f"resets {seed}")
    if chance.random() >= _RESET:
        return ()
    return tuple(
        ResetAt(
            chance.choice((1.0, 4.0)) * chance.random(),
            chance.choice((None, None, 2 * chance.random(), 4 * chance.random(), -1.0)),
            (chance.choice((0.02, 0.3)) * chance.random(),) if chance.random() < _BROKEN_OFF else (),
        )
        for _ in range(chance.choice((1, 1, 2)))
    )
