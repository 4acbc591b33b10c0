"""The type of a mutant."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Mutant(NamedTuple):
    """A defect. One of `promises` must be found broken within `seeds` seeds from `first` on; to save time, `first` is
    close to a seed that is known to show it. `script` is for a defect that few scripts can show: every seed then runs
    the script of that seed, in its own order of events.
    """

    made: Callable[[], AbstractContextManager[None]]
    promises: tuple[str, ...]
    seeds: int
    first: int = 0
    script: int | None = None
