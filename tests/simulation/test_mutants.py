"""Tests of the simulation: each of these defects in the product breaks the stated promise."""

from __future__ import annotations

import pytest

from tests.simulation import surroundings
from tests.simulation.horizon_mutants import never_clean, own_epoch_unclean
from tests.simulation.mutants import MUTANTS
from tests.simulation.script import written
from tests.simulation.subscription_mutants import slow_registry
from tests.simulation.world import simulate

pytestmark = pytest.mark.source  # a mutant replaces a method, which a compiled class doesn't allow


@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught(name):
    """L, D, O, order, X11, K10: a mutant doesn't survive its stated number of seeds."""
    mutant = MUTANTS[name]
    found = ""
    with surroundings.replaced(), mutant.made():
        for seed in range(mutant.first, mutant.first + mutant.seeds):
            broken = simulate(seed, script=mutant.script).broken
            if broken is not None and broken.promise in mutant.promises:
                return
            found = found or str(broken or "")
    pytest.fail(f"{mutant.seeds} seeds show nothing of promise {' or '.join(mutant.promises)}; {found}")


@pytest.mark.parametrize("changed", [never_clean, own_epoch_unclean])
def test_needless_horizon_is_harmless(changed):
    """X11: a clean end that is taken for an unclean one breaks nothing, nor does the node's own first record."""
    with surroundings.replaced(), changed():
        for seed in range(15):
            broken = simulate(seed).broken
            assert broken is None, f"seed {seed}"


def test_late_registry_is_harmless():
    """L, K10: a creation waits for those who learn of it late, and they claim nothing meanwhile."""
    seeds = [seed for seed in range(60) if written(seed).audit is not None]
    with surroundings.replaced(), slow_registry():
        for seed in seeds:
            broken = simulate(seed).broken
            assert broken is None, f"seed {seed}"
