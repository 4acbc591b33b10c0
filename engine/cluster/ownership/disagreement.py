"""Reports disagreements between a node and etcd about ownership: once in the log, and as a trouble until resolved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from evenlane.engine.base.troubles import Troubles

_log = structlog.get_logger(__name__)

_KIND = "ownership"


class OwnershipDisagreement:
    """Reports disagreements of one process, across its sessions. Thread-safe, like `Troubles`.

    Invariants: `_difference` is the reason of the present disagreement, empty if there is none. `_is_logged` suppresses
    further log entries until node and etcd agree again; `_was_logged` is set from the first entry on.
    """

    def __init__(self, troubles: Troubles) -> None:
        self._troubles = troubles
        self._difference = ""
        self._waiting: dict[int, int] = {}  # partition -> epoch of an owner that etcd has lost
        self._is_logged = False  # since the last agreement
        self._was_logged = False  # at any time

    def note_difference(self, reason: str) -> None:
        """Report that etcd's record of this node no longer matches what the node owns."""
        if not self._is_logged:
            self._is_logged = self._was_logged = True
            _log.warning("etcd has forgotten what it knew of owners", reason=reason)
        self._difference = reason
        self._show()

    def on_rolled_back_owner(self, reason: str) -> None:
        """Report that a settle log names an owner that etcd has lost.

        The node may take over such a partition long after it agrees with etcd again. This is therefore logged only if
        no earlier disagreement was; `note_difference` logs later ones.
        """
        self._is_logged = self._is_logged or self._was_logged
        self.note_difference(reason)

    def note_waiting(self, partition: int, epoch: int) -> None:
        """Report that a previous owner that etcd has lost may still serve the partition."""
        self._waiting[partition] = epoch
        self._show()

    def note_wait_end(self, partition: int) -> None:
        if self._waiting.pop(partition, None) is not None:
            self._show()

    def end(self) -> None:
        """End the session: the node no longer waits for any owner."""
        self._waiting.clear()
        self._show()

    def note_agreement(self) -> None:
        """Report that the node has carried out its plan: it owns exactly the partitions that etcd assigns to it."""
        self._difference = ""
        self._is_logged = bool(self._waiting)
        self._show()

    def _show(self) -> None:
        if count := len(self._waiting):
            partitions = f"{count} partitions" if count > 1 else "a partition"
            self._troubles.begin(
                _KIND,
                f"waits until no previous owner can still serve {partitions}: etcd was restored and no longer knows it",
                ready=False,
            )
        elif self._difference:
            self._troubles.begin(
                _KIND, f"disagrees with etcd about what it owns, and rejoins: {self._difference}", ready=False
            )
        else:
            self._troubles.end(_KIND)
