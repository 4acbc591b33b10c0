"""What a node's process claims in the cluster, in memory that it shares with its supervisor: read when it is gone.

Not on the lifeline, which a supervisor that is stopped (Ctrl-Z) doesn't read: it would fill, and the node would stand
still. Here only the newest counts, and writing never waits.
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
_HEADER = struct.Struct("=QQ")  # where the newest begins, and its length
_FIRST, _SECOND = 1 << 12, 1 << 30  # two places in turn; pages that nobody writes take no memory


class Claims(NamedTuple):
    """`leases` in etcd that the process may hold; `lent` are the projects whose parts others may use, and until when
    (ns of `evenlane.engine.base.clock.now_ns`).
    """

    leases: tuple[int, ...] = ()
    lent: Mapping[str, int] = MappingProxyType({})


class Claimant:
    """The node's end, an `evenlane.engine.runtime.supervision.Supervision`. A process that is killed leaves what it
    claimed last: first it is written to the place that doesn't count, then the header, of 16 bytes within a page, which
    the kernel writes whole or not at all.
    """

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._memory = descriptor
        self._place = _SECOND
        self._claims = Claims()

    def holds(self, leases: Collection[int]) -> None:
        self._write(self._claims._replace(leases=tuple(leases)))

    def lends(self, lent: Mapping[str, int]) -> None:
        if lent != self._claims.lent:
            self._write(self._claims._replace(lent={**lent}))

    def _write(self, claims: Claims) -> None:
        raw = json.dumps([claims.leases, {**claims.lent}]).encode()
        place = _FIRST if self._place == _SECOND else _SECOND
        os.pwrite(self._memory, raw, place)
        os.pwrite(self._memory, _HEADER.pack(place, len(raw)), 0)
        self._place, self._claims = place, claims


def shared() -> int:
    """A descriptor of such memory, for `Claimant` and `claimed`. Nothing is claimed yet."""
    return os.memfd_create("evenlane-claims")


def claimed(descriptor: int) -> Claims:
    """What a process that is gone has claimed."""
    header = os.pread(descriptor, _HEADER.size, 0)
    if not header:
        return Claims()
    place, length = _HEADER.unpack(header)
    leases, lent = json.loads(os.pread(descriptor, length, place))
    return Claims(tuple(leases), lent)
