"""Finds placement strategies by name: those of Evenlane, and those that other packages bring as entry points."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, cast

from evenlane.engine.errors import ConfigError
from evenlane.ring.placement.strategy import GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.ring.placement.strategy import PlacementStrategy

BUILT_IN = {
    "bounded-ring": "evenlane.ring.placement.bounded:place_in_bounds",
    "zones": "evenlane.ring.placement.zones:place_in_zones",
    "range": "evenlane.ring.placement.simple:place_in_ranges",
    "round-robin": "evenlane.ring.placement.simple:place_in_turn",
}
"""Also registered in pyproject.toml; listed here so that no other package replaces one of them."""


def list_strategies(found: Iterable[EntryPoint] | None = None) -> dict[str, list[EntryPoint]]:
    """The entry points by name, Evenlane's own first. `found` defaults to those of the installed packages."""
    listed = {name: [EntryPoint(name, value, GROUP)] for name, value in BUILT_IN.items()}
    others = entry_points(group=GROUP) if found is None else found
    for each in sorted(others, key=lambda point: (point.name, point.value)):
        if each.name not in BUILT_IN and each not in listed.setdefault(each.name, []):
            listed[each.name].append(each)
    return listed


def load_strategy(name: str, found: Iterable[EntryPoint] | None = None) -> PlacementStrategy:
    """Raises ConfigError for a name that is unknown or ambiguous, and for a strategy that can't be imported."""
    listed = list_strategies(found)
    if name not in listed:
        raise ConfigError(f"there is no placement strategy {name!r}: there are {', '.join(listed)}")
    if len(listed[name]) > 1:
        values = " and ".join(each.value for each in listed[name])
        raise ConfigError(f"several packages have a placement strategy {name!r}: {values}; uninstall all but one")
    [entry] = listed[name]
    try:
        strategy = entry.load()
    except Exception as error:
        raise ConfigError(
            f"the placement strategy {name!r} ({entry.value}) can't be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(strategy):
        raise ConfigError(f"the placement strategy {name!r} ({entry.value}) can't be called: it must be a function")
    return cast("PlacementStrategy", strategy)
