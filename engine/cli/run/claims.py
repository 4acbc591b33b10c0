"""Claims of a node's process in the cluster, in memory shared with its supervisor, which reads them after its end.

Claims aren't sent on the lifeline: a stopped supervisor (Ctrl-Z) doesn't read the lifeline, which would fill up and
block the node. In shared memory only the newest claims count, and writing never blocks.
"""

from __future__ import annotations

import json
import os
import struct
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

FLAG = "--claims"
_HEADER = struct.Struct("=QQ")  # offset of the newest claims, and their length
_FIRST, _SECOND = 1 << 12, 1 << 30  # two offsets used alternately; unwritten pages take no memory


class ProcessClaims(NamedTuple):
    """Claims of a process. `leases` are those in etcd that it may hold; `lent` are the projects whose quota share other
    nodes may use, and until when (ns of `evenlane.engine.base.clock.now_ns`).

    Invariant: `cluster` is that of the process's keys as soon as it has leases. The supervisor can't know it otherwise,
    as an application may name its subscription.
    """

    cluster: str = ""
    leases: tuple[int, ...] = ()
    lent: Mapping[str, int] = MappingProxyType({})


class Claimant:
    """The node's end, an `evenlane.engine.runtime.supervision.Supervision`. A killed process leaves its last complete
    claims: new ones are first written to the offset that isn't in use, and then the header is. Its 16 bytes are within
    a page, so the kernel writes them entirely or not at all.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._memory = descriptor
        self._place = _SECOND
        self._claims = ProcessClaims()

    def report_leases(self, cluster: str, leases: Collection[int]) -> None:
        self._write(self._claims._replace(cluster=cluster, leases=tuple(leases)))

    def report_lent(self, lent: Mapping[str, int]) -> None:
        if lent != self._claims.lent:
            self._write(self._claims._replace(lent={**lent}))

    def _write(self, claims: ProcessClaims) -> None:
        raw = json.dumps([claims.cluster, claims.leases, {**claims.lent}]).encode()
        place = _FIRST if self._place == _SECOND else _SECOND
        os.pwrite(self._memory, raw, place)
        os.pwrite(self._memory, _HEADER.pack(place, len(raw)), 0)
        self._place, self._claims = place, claims


def create_shared_memory() -> int:
    """Return a descriptor of shared memory without claims, for `Claimant` and `read_claims`."""
    return os.memfd_create("evenlane-claims")


def read_claims(descriptor: int) -> ProcessClaims:
    """Return the claims of a process that has ended."""
    header = os.pread(descriptor, _HEADER.size, 0)
    if not header:
        return ProcessClaims()
    place, length = _HEADER.unpack(header)
    cluster, leases, lent = json.loads(os.pread(descriptor, length, place))
    return ProcessClaims(cluster, tuple(leases), lent)
