"""What a node says while etcd and it differ about who owns what, in the log once and as a trouble until it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from evenlane.engine.base.troubles import Troubles

_log = structlog.get_logger(__name__)

_KIND = "ownership"


class OwnershipDisagreement:
    """Of one process, over all its terms. For any thread, as `Troubles` is."""

    def __init__(self, troubles: Troubles) -> None:
        self._troubles = troubles
        self._differs = ""
        self._waiting: dict[int, int] = {}  # partition -> the epoch of an owner of whom etcd knows nothing
        self._is_logged = False  # since the two agreed last
        self._was_logged = False  # ever

    def differs(self, reason: str) -> None:
        """What etcd has for this node no longer matches what the node owns."""
        if not self._is_logged:
            self._is_logged = self._was_logged = True
            _log.warning("etcd has forgotten what it knew of owners", reason=reason)
        self._differs = reason
        self._show()

    def names_forgotten_owner(self, reason: str) -> None:
        """A settle log names an owner that etcd has forgotten. The node may take such a partition over long after it
        agrees with etcd again, so this is logged only if no difference was logged before; `differs` logs a later one.
        """
        self._is_logged = self._is_logged or self._was_logged
        self.differs(reason)

    def waits(self, partition: int, epoch: int) -> None:
        """A previous owner that etcd has forgotten may still serve the partition."""
        self._waiting[partition] = epoch
        self._show()

    def waits_no_more(self, partition: int) -> None:
        if self._waiting.pop(partition, None) is not None:
            self._show()

    def left(self) -> None:
        """The term is over: nothing is waited for."""
        self._waiting.clear()
        self._show()

    def agrees(self) -> None:
        """The node has carried out its plan: it owns what etcd says."""
        self._differs = ""
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
        elif self._differs:
            self._troubles.begin(
                _KIND, f"differs from etcd about what it owns, and joins anew: {self._differs}", ready=False
            )
        else:
            self._troubles.end(_KIND)
