"""Reports partitions that a node can't take over, because this release can't read their settle logs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.base.plural import format_count

if TYPE_CHECKING:
    from evenlane.engine.base.troubles import Troubles

_KIND = "settle_log"


class UnreadableLogs:
    """The unreadable settle logs of one process, over all its sessions."""

    def __init__(self, troubles: Troubles) -> None:
        self._troubles = troubles
        self._reasons: dict[int, str] = {}

    def note(self, partition: int, reason: str) -> None:
        """Set the reason why the partition's log can't be read; "" if it can, or if the partition is another node's."""
        before = self._reasons.pop(partition, "")
        if reason:
            self._reasons[partition] = reason
        if reason or before:
            self._show()

    def _show(self) -> None:
        if not self._reasons:
            self._troubles.end(_KIND)
            return
        first = min(self._reasons)
        others = len(self._reasons) - 1
        more = f" (and {format_count(others, 'partition')} more)" if others else ""
        self._troubles.begin(_KIND, f"can't take over partition {first}{more}: {self._reasons[first]}")
