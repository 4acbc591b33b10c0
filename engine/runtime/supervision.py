"""What a node tells whoever supervises its process, so that its leases can be ended when the process is gone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Supervision(Protocol):
    """A supervisor that learns of the process's exit from the kernel (docs/adr/0024)."""

    def holds(self, leases: Collection[int]) -> None:
        """All leases in etcd that this process may hold. Called before anything is put under a new one, and after one
        is given back.
        """
        ...

    def lends(self, lent: Mapping[str, int]) -> None:
        """The projects whose parts on this node others may use, and until when (ns of
        `evenlane.engine.base.clock.now_ns`). Called before they may.
        """
        ...


class Unsupervised:
    """Nobody: leases end by themselves."""

    def holds(self, leases: Collection[int]) -> None:
        pass

    def lends(self, lent: Mapping[str, int]) -> None:
        pass
