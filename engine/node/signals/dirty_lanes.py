"""The lanes whose settle logs have something to write."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.core.lane.lane import Lane


class DirtyLanes:
    """Any part marks a lane as dirty; the settler is the only one that writes, and takes lanes out."""

    def __init__(self) -> None:
        self.lanes: dict[Lane, None] = {}  # in the order in which they became dirty
        self.changed = asyncio.Event()

    def mark(self, lane: Lane) -> None:
        """The lane's log has something to write. A fenced lane writes nothing more."""
        if lane not in self.lanes and not lane.fenced:
            self.lanes[lane] = None
            self.changed.set()
