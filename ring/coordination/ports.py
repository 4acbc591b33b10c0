"""The coordination port: the engine's view of etcd.

`evenlane.ring.coordination.etcd` and `evenlane.ring.coordination.memory` implement it; one test suite runs on both.
Revisions are etcd's: one counter for the whole store, raised by every change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol


class CoordinationError(Exception):
    """The store refused a request; the text says which store and why."""


class Unavailable(CoordinationError):
    """The store didn't answer in time: whether a write was carried out is unknown."""


class Denied(CoordinationError):
    """The user has no permission for this request."""


class LeaseGone(CoordinationError):
    """The lease under which a key was to be put has expired or was revoked; nothing was put."""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One key as stored.

    `create_revision` is that of the put that created the key (it serves as an epoch), `mod_revision` that of its last
    put; `lease` is 0 without a lease.
    """

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int


@dataclass(frozen=True, slots=True)
class Listing:
    """All keys under a prefix at `revision`, sorted by key."""

    revision: int
    items: tuple[KeyValue, ...]


@dataclass(frozen=True, slots=True)
class Event:
    """One change. For a deleted key, only `key` and `mod_revision` (of the deletion) are set."""

    kind: Literal["put", "delete"]
    item: KeyValue


@dataclass(frozen=True, slots=True)
class Absent:
    """Holds if the key doesn't exist."""

    key: str


@dataclass(frozen=True, slots=True)
class CreatedAt:
    """Holds if the key exists and was created at this revision, that is, hasn't been deleted and created
    again since.
    """

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class ModifiedAt:
    """Holds if the key exists and was last put at this revision."""

    key: str
    revision: int


@dataclass(frozen=True, slots=True)
class HeldUnder:
    """Holds if the key is attached to this lease; 0: to none, or the key doesn't exist."""

    key: str
    lease: int


@dataclass(frozen=True, slots=True)
class PutKey:
    """Sets the key; `lease` 0 is none."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class DeleteKey:
    """Removes the key if it exists."""

    key: str


Compare = Absent | CreatedAt | ModifiedAt | HeldUnder
Op = PutKey | DeleteKey


@dataclass(frozen=True, slots=True)
class TxnResult:
    """The branch that was taken (`succeeded`: `then`), and the store's revision after it."""

    succeeded: bool
    revision: int


class Watch(Protocol):
    """The changes under a prefix, without end.

    It yields a `Listing` first, then each later `Event` in the order of revisions, without gaps. After a lost
    connection, a compaction or any other error it yields a new `Listing`, which replaces everything before, and so on.
    It ends only by `aclose`, which also ends a pending `__anext__`.
    """

    def __aiter__(self) -> "Watch": ...

    async def __anext__(self) -> Listing | Event: ...

    async def aclose(self) -> None: ...


class Coordination(Protocol):
    """A client of the store. Every call may raise `Unavailable`, by default after at most 2 s."""

    async def get(self, key: str) -> KeyValue | None: ...

    async def list(self, prefix: str) -> Listing: ...

    async def put(self, key: str, value: bytes, lease: int = 0) -> int:
        """Returns the revision of the put. Raises `LeaseGone`."""
        ...

    async def delete(self, key: str) -> bool:
        """Returns whether the key existed."""
        ...

    async def txn(self, compare: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op] = ()) -> TxnResult:
        """Carry out all of `then` at one revision if all of `compare` hold, otherwise all of `otherwise`.

        At most 128 operations per branch, no key put twice. Raises `LeaseGone`.
        """
        ...

    async def grant(self, ttl_s: int) -> int:
        """Create a lease, and return its id. Its keys are deleted together once it hasn't been kept alive for `ttl_s`
        seconds.

        The store may keep it for longer (for a full TTL after a change of etcd's leader), but never for less.
        """
        ...

    async def keep_alive(self, lease: int) -> int:
        """Renew the lease, and return its time to live, s; 0 if it is gone."""
        ...

    async def lease_keys(self, lease: int) -> frozenset[str] | None:
        """The keys attached to the lease; None if it is gone."""
        ...

    async def revoke(self, lease: int) -> None:
        """End the lease and delete its keys now; no effect if it is gone already."""
        ...

    def watch(self, prefix: str, *, exact: bool = False) -> Watch:
        """Watch all keys under the prefix; with `exact`, only the key `prefix` itself."""
        ...

    async def status(self) -> str:
        """The server's version, after a read that needs a quorum."""
        ...

    async def close(self) -> None:
        """End all watches and calls; may be called twice. Leases live on until they expire."""
        ...
