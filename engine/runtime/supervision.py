"""Reports of a node to the supervisor of its process, so that its leases can be ended after the process's exit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Supervision(Protocol):
    """A supervisor that is notified of the process's exit by the kernel (docs/adr/0024)."""

    def report_leases(self, cluster: str, leases: Collection[int]) -> None:
        """Report all leases in etcd that this process may hold, and the cluster that its keys are of. Called before
        anything is put under a new lease, and after one is revoked.
        """
        ...

    def report_lent(self, lent: Mapping[str, int]) -> None:
        """Report the projects whose quota share on this node other nodes may use, and until when (ns of
        `evenlane.engine.base.clock.now_ns`). Called before they may.
        """
        ...


class Unsupervised:
    """No supervisor: leases expire by themselves."""

    def report_leases(self, cluster: str, leases: Collection[int]) -> None:
        pass

    def report_lent(self, lent: Mapping[str, int]) -> None:
        pass
