"""Promises L, D, O, Z1, order, attempts, poison and times to live over thousands of simulated lives of a cluster."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation import surroundings
from tests.simulation.script import GRACEFUL, OF_A_NODE, OF_ALL, OF_ETCD_BACK
from tests.simulation.world import simulate

_SEEDS, _CHUNK = 120, 120
_ALL_SEEDS, _LARGE_CHUNK = 100_000, 1_000
_MOST_SHOWN = 5


def _survive(seeds: range) -> Counter[str]:
    """Totals over these seeds; fails with the commands that replay those which broke a promise."""
    totals: Counter[str] = Counter()
    broken: list[str] = []
    with surroundings.replaced():
        for seed in seeds:
            result = simulate(seed)
            totals.update(result.counts)
            if result.broken is not None:
                broken.append(f".venv/bin/python -m tests.simulation --seed {seed} --trace  # {result.broken}")
    if broken:
        pytest.fail(f"{len(broken)} of {len(seeds)} seeds broke a promise:\n" + "\n".join(broken[:_MOST_SHOWN]))
    return totals


def _really_happened(totals: Counter[str], seeds: int) -> None:
    """The simulation hasn't gone blind."""
    for kind in (*OF_A_NODE, *OF_ALL, *OF_ETCD_BACK, *GRACEFUL):
        assert totals[f"fault: {kind}"] > 0, f"{kind} never happened"
    assert totals["put"] > 15 * seeds
    assert totals["settled"] >= totals["put"]
    assert totals["taken"] > 5 * seeds, "partitions hardly ever changed hands"
    assert totals["duplicates"] > 0, "no fault ever hit anything under way"
    for ending in ("failed", "paused", "expired", "kills", "dead: expired", "dead: rejected"):
        assert totals[ending] > 0, f"{ending} never happened"
    assert any(kind.startswith("dead: its process died") for kind in totals)


@pytest.mark.parametrize("first", range(0, _SEEDS, _CHUNK))
def test_seeds(first):
    """L, D, O, Z1, order, K4, K5, X11: after every step of each, and everything owned and drained in the end."""
    _really_happened(_survive(range(first, first + _CHUNK)), _CHUNK)


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, _ALL_SEEDS, _LARGE_CHUNK))
def test_many_seeds(first):
    """L, D, O, Z1, order, K4, K5, X11: the same, a hundred thousand times."""
    _really_happened(_survive(range(first, first + _LARGE_CHUNK)), _LARGE_CHUNK)


def test_a_seed_is_always_the_same():
    """A failing seed can be replayed: everything that happens is the same again, watched or not."""
    with surroundings.replaced():
        for seed in range(5):
            lives: list[list[str]] = [[], []]
            results = [simulate(seed, life.append) for life in lives]
            assert lives[0] == lives[1]
            assert len(lives[0]) > 50
            assert simulate(seed).counts == results[0].counts
