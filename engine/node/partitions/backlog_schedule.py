"""Decides when the backlogs of newly opened partitions are fed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evenlane.engine.node.partitions.partition import Partition

OPEN_FIRST_S = 1.0  # how long a backlog waits for other partitions to be open
_MANY, _AFTER_MANY_S = 8, 0.5  # after opening this many together, backlogs wait this long for other nodes


class BacklogSchedule:
    """Feeds backlogs once all partitions that arrived together are open, or a while after the first one. After a node's
    death, other nodes may still be opening theirs: new messages there come before a backlog here.

    Invariants: `unopened` counts the partitions being opened, and `_together` is the most of them at once since
    backlogs were last fed. `_behind` has open partitions whose backlog isn't fed yet.
    """

    def __init__(self) -> None:
        self.unopened = self._together = 0
        self._behind: list[Partition] = []
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """One more partition is being opened."""
        self.unopened += 1
        self._together = max(self._together, self.unopened)

    def add(self, partition: Partition) -> None:
        """The partition is open."""
        self._behind.append(partition)

    def end(self) -> None:
        """An opening has ended, successfully or not."""
        self.unopened -= 1
        if not self.unopened and self._together < _MANY:
            self._feed()
        elif self._behind and self._timer is None:
            wait_s = OPEN_FIRST_S if self.unopened else _AFTER_MANY_S
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._feed)

    def _feed(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        behind, self._behind, self._together = self._behind, [], self.unopened
        for partition in behind:
            partition.catch_up()
