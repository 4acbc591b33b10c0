"""What a mutant is."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager


class Mutant(NamedTuple):
    """`promises` are those of which one must be found broken, within `seeds` seeds from `first` on: where it was found
    before, so that nobody waits for it long. Where `script` is a seed, all of them run its script, each in an order of
    its own: for a defect that few scripts can show.
    """

    made: Callable[[], AbstractContextManager[None]]
    promises: tuple[str, ...]
    seeds: int
    first: int = 0
    script: int | None = None
