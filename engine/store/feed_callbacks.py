"""Callbacks of one feed, for both adapters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass
class FeedCallbacks:
    """The callbacks of one feed: see `Store.feed` in engine/core/ports.py.

    Invariant: `on_end` is set until it has been called, which happens once.
    """

    sink: Callable[[bytes, int, int, bytes, bytes], None]
    on_break: Callable[[int], Awaitable[int]]
    on_end: Callable[[], None] | None = None
    on_head: Callable[[bytes, int, int, bytes, int], bool] | None = None

    def call_on_end(self) -> None:
        """Call `on_end`, once."""
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end()
