"""What a mutant is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Mutant(NamedTuple):
    """`promises` are those of which one must be found broken, within `seeds` seeds."""

    made: Callable[[], AbstractContextManager[None]]
    promises: tuple[str, ...]
    seeds: int
