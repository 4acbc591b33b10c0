"""Strategies are found by name: Evenlane's own, and entry points of other packages."""

import re
import tomllib
from importlib.metadata import EntryPoint

import pytest

from evenlane.engine.control.placement import BUILT_IN, list_strategies, load_strategy
from evenlane.engine.errors import ConfigError
from evenlane.ring.placement.bounded import place_in_bounds
from evenlane.ring.placement.placement import place
from evenlane.ring.placement.strategy import GROUP
from tests.support import ROOT

CONSTANT = 7


def place_on_last(request):
    """A strategy as another package would have it."""
    return [request.nodes[-1].name] * len(request.loads)


def entry(name, value):
    return EntryPoint(name, value, GROUP)


def refusal(name, *found):
    with pytest.raises(ConfigError) as caught:
        load_strategy(name, found)
    return str(caught.value)


def test_strategies_of_this_distribution_are_registered():
    """C2: in pyproject.toml as in the code, and each can be loaded."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert BUILT_IN == project["entry-points"][GROUP]
    for name in BUILT_IN:
        assert ["a", "a"] == place(["a"], [1.0, 2.0], {}, load_strategy(name))


def test_strategy_of_another_package_places():
    """C2"""
    strategy = load_strategy("last", [entry("last", f"{__name__}:place_on_last")])
    assert ["b", "b"] == place(["a", "b"], [1.0, 1.0], {}, strategy)


def test_unknown_name_lists_those_there_are():
    """C2"""
    error = refusal("modulo", entry("racks", "racks:place"))
    assert "there is no placement strategy 'modulo': there are bounded-ring, zones, range, round-robin, racks" == error


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("no_such_package:place", r"can't be imported: ModuleNotFoundError: No module named 'no_such_package'"),
        (f"{__name__}:missing", r"can't be imported: AttributeError: .*missing.*"),
        (f"{__name__}:CONSTANT", r"can't be called: it must be a function"),
    ],
)
def test_strategy_that_cannot_be_loaded_is_named(value, sentence):
    """C2: with its package's module, and why."""
    error = refusal("racks", entry("racks", value))
    assert re.search(rf"^the placement strategy 'racks' \({value}\) {sentence}$", error)


def test_name_of_two_packages_is_refused():
    """C2: which of them is meant can't be known."""
    error = refusal("racks", entry("racks", "one:place"), entry("racks", "two:place"))
    assert "several packages have a placement strategy 'racks': one:place and two:place; uninstall all but one" == error


def test_own_strategy_cannot_be_replaced():
    """C2"""
    found = [entry("bounded-ring", f"{__name__}:place_on_last")]
    assert load_strategy("bounded-ring", found) is place_in_bounds
    assert [*BUILT_IN] == [*list_strategies(found)]
