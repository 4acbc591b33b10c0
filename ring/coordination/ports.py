"""The coordination port: what the engine asks of etcd, and nothing of how it is asked.

`evenlane.ring.coordination.etcd` and `evenlane.ring.coordination.memory` implement it; one test suite runs on both.
Revisions are etcd's: one counter for the whole store, raised by every change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


class CoordinationError(Exception):
    """The store refused a request; the text says which store and why."""


class Unavailable(CoordinationError):
    """The store didn't answer in time: a write may or may not have been done."""


class LeaseGone(CoordinationError):
    """A key was to be put under a lease that has expired or was revoked; nothing was put."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as stored.

    `create_revision` is that of the put that made the key (it serves as an epoch), `mod_revision` that of
    its last put; `lease` is 0 without a lease.
    """

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys under a prefix as they stood at `revision`, sorted by key."""

    revision: int
    items: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One change. Of a deleted key only `key` and `mod_revision` (of the deletion) are told."""

    kind: Literal["put", "delete"]
    item: KeyValue


@dataclass(frozen=True, slots=True)
class Absent:
    """Holds if the key doesn't exist."""

    key: str


@dataclass(frozen=True, slots=True)
class CreatedAt:
    """Holds if the key exists and was created at this revision: nobody else has made it anew since."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class ModifiedAt:
    """Holds if the key exists and was last put at this revision."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class HeldUnder:
    """Holds if the key stands under this lease; 0: if it stands under none, or there is no such key."""

    key: str
    lease: int


@dataclass(frozen=True, slots=True)
class Put:
    """Sets the key; `lease` 0 is none."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """Removes the key if it is there."""

    key: str


Compare = Absent | CreatedAt | ModifiedAt | HeldUnder
Op = Put | Delete


@dataclass(frozen=True, slots=True)
class TxnResult:
    """Which arm was done (`succeeded`: the first), and the store's revision after it."""

    succeeded: bool
    revision: int


class Watch(Protocol):
    """What happens under a prefix, forever.

    First a `Listing`, then each `Event` after it in the order of revisions, none missing. After a lost
    connection, a compaction or any other error comes a new `Listing`, which replaces all that was known,
    and so on. Ends only by `aclose`, which also ends a waiting `__anext__`.
    """

    def __aiter__(self) -> "Watch": ...

    async def __anext__(self) -> Listing | Event: ...

    async def aclose(self) -> None: ...


class Coordination(Protocol):
    """A client of the store. Every call may raise `Unavailable`, after 2 s at the most by default."""

    async def get(self, key: str) -> KeyValue | None: ...

    async def list(self, prefix: str) -> Listing: ...

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Returns the revision of the put. Raises `LeaseGone`."""
        ...

    async def delete(self, key: str) -> bool:
        """Returns whether there was such a key."""
        ...

    async def txn(self, compare: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> TxnResult:
        """All of `then` at one revision if all of `compare` hold, else all of `otherwise`.

        At most 128 operations an arm, no key put twice. Raises `LeaseGone`.
        """
        ...

    async def grant(self, ttl_s: int) -> int:
        """A new lease's id; its keys are deleted together when nobody has kept it alive for `ttl_s` seconds.

        The store may keep it longer (after a change of etcd's leader by a full TTL), never shorter.
        """
        ...

    async def keep_alive(self, lease: int) -> int:
        """The seconds which the lease now has again; 0 if it is gone."""
        ...

    async def lease_keys(self, lease: int) -> frozenset[str] | None:
        """The keys that stand under the lease now; None if it is gone."""
        ...

    async def revoke(self, lease: int) -> None:
        """Ends the lease and deletes its keys now; nothing happens if it is gone already."""
        ...

    def watch(self, prefix: str) -> Watch: ...

    async def status(self) -> str:
        """The server's version, after a read that needed a quorum."""
        ...

    async def close(self) -> None:
        """Ends all watches and calls; may be called twice. Leases live on until they expire."""
        ...
