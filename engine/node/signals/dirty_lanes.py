"""The lanes whose settle logs have records to write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane


class DirtyLanes:
    """Any part marks a lane as dirty; only the settler writes, and removes lanes."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, None] = {}  # in the order in which they became dirty
        self.changed = asyncio.Event()

    def mark(self, lane: Lane) -> None:
        """Mark a lane whose log has something to write. A fenced lane is ignored: it writes nothing more."""
        if lane not in self.lanes and not lane.fenced:
            self.lanes[lane] = None
            self.changed.set()
