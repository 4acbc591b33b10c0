"""etcd's semantics as a plain state machine: revisions, transactions, leases, history. No I/O, no clock."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evenlane.ring.coordination.ports import (
    Absent,
    Compare,
    CoordinationError,
    CreatedAt,
    DeleteKey,
    Event,
    HeldUnder,
    KeyValue,
    LeaseGone,
    Listing,
    Op,
    PutKey,
    TxnResult,
)

MOST_OPS = 128
MOST_BYTES = 1_572_864  # a request, as etcd's default
_MOST_HISTORY = 100_000  # events; beyond this the oldest are compacted away, as an operator of etcd would do


@dataclass(frozen=True)
class Backup:
    """The content of a store at some time; `leases` maps ids to their TTL, s. By default, that of a new store."""

    revision: int = 1
    compacted: int = 0
    keys: Mapping[str, KeyValue] = field(default_factory=dict)
    history: tuple[Event, ...] = ()
    leases: Mapping[int, int] = field(default_factory=dict)


class MemoryKeyValueStore:
    """The content of an etcd cluster; shared by the clients of a test or a simulation."""

    def __init__(self, *, most_history: int = _MOST_HISTORY) -> None:
        self._most_history = most_history
        self.revision = 1  # as in a new etcd
        self.compacted = 0  # events up to this revision are dropped
        self.restored = 0  # number of rollbacks and restores
        self.changed: list[Callable[[], None]] = []  # called after every change of keys
        self._keys: dict[str, KeyValue] = {}
        self._history: deque[Event] = deque()
        self._now_s = 0.0
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0

    def get(self, key: str) -> KeyValue | None:
        return self._keys.get(key)

    def list(self, prefix: str) -> Listing:
        keys = sorted(key for key in self._keys if key.startswith(prefix))
        return Listing(self.revision, tuple(self._keys[key] for key in keys))

    def events_after(self, revision: int, prefix: str) -> Iterator[Event]:
        """Later events, in order. Check `compacted` first: it must not be above `revision`."""
        newer: list[Event] = []
        for event in reversed(self._history):
            if event.item.mod_revision <= revision:
                break
            newer.append(event)
        return (event for event in reversed(newer) if event.item.key.startswith(prefix))

    def txn(self, compare: Sequence[Compare], then: Sequence[Op], otherwise: Sequence[Op]) -> TxnResult:
        self._check(then)
        self._check(otherwise)
        succeeded = all(map(self._is_true, compare))
        self._apply(then if succeeded else otherwise)
        return TxnResult(succeeded, self.revision)

    def grant(self, ttl_s: int) -> int:
        if ttl_s < 1:
            raise CoordinationError(f"a lease of {ttl_s} s can't be granted: at least 1 s is needed")
        self._last_lease += 1
        self._leases[self._last_lease] = _Lease(ttl_s, self._now_s + ttl_s)
        return self._last_lease

    def keep_alive(self, lease: int) -> int:
        kept = self._leases.get(lease)
        if kept is None:
            return 0
        kept.expires_s = self._now_s + kept.ttl_s
        return kept.ttl_s

    def lease_keys(self, lease: int) -> frozenset[str] | None:
        kept = self._leases.get(lease)
        return None if kept is None else frozenset(kept.keys)

    def revoke(self, lease: int) -> None:
        ended = self._leases.pop(lease, None)
        if ended is not None:
            self._apply([DeleteKey(key) for key in sorted(ended.keys)])

    def advance(self, seconds: float) -> None:
        """Let time pass; leases that weren't kept alive expire, the earliest first."""
        self._now_s += seconds
        due = sorted((kept.expires_s, lease) for lease, kept in self._leases.items())
        for expires_s, lease in due:
            if expires_s <= self._now_s:
                self.revoke(lease)

    def compact(self, revision: int) -> None:
        """Drop the events up to `revision`."""
        if not self.compacted < revision <= self.revision:
            raise CoordinationError(
                f"revision {revision} can't be compacted: it must be above {self.compacted}"
                f" and at the most {self.revision}"
            )
        self.compacted = revision
        while self._history and self._history[0].item.mod_revision <= revision:
            self._history.popleft()

    def roll_back(self, revision: int) -> None:
        """Drop all later changes, as an etcd that was restored from a backup does; leases stay. Only before any
        compaction.
        """
        if self.compacted:
            raise CoordinationError("what was compacted away can't be had again")
        while self._history and self._history[-1].item.mod_revision > revision:
            self._history.pop()
        self.revision, self._keys, self.restored = revision, {}, self.restored + 1
        for event in self._history:
            self._keys.pop(event.item.key, None)
            if event.kind == "put":
                self._keys[event.item.key] = event.item
        for number, lease in self._leases.items():
            lease.keys = {key for key, stored in self._keys.items() if stored.lease == number}
        for notify in tuple(self.changed):
            notify()

    def backup(self) -> Backup:
        """The present content."""
        leases = {number: lease.ttl_s for number, lease in self._leases.items()}
        return Backup(self.revision, self.compacted, dict(self._keys), tuple(self._history), leases)

    def restore(self, backup: Backup) -> None:
        """Restore a backup, as etcd does; `Backup()` is that of a new, empty etcd. Its leases have their full time
        again. No lease id is ever reused, whatever was restored.
        """
        self.revision, self.compacted = backup.revision, backup.compacted
        self._keys, self._history = dict(backup.keys), deque(backup.history)
        self._leases = {number: _Lease(ttl_s, self._now_s + ttl_s) for number, ttl_s in backup.leases.items()}
        for key, stored in self._keys.items():
            if stored.lease in self._leases:
                self._leases[stored.lease].keys.add(key)
        self.restored += 1
        for notify in tuple(self.changed):
            notify()

    def _check(self, ops: Sequence[Op]) -> None:
        if len(ops) > MOST_OPS:
            raise CoordinationError("too many operations in txn request")
        puts = [op for op in ops if isinstance(op, PutKey)]
        if len({op.key for op in puts}) < len(puts):
            raise CoordinationError("duplicate key given in txn request")
        if any(not op.key for op in ops):
            raise CoordinationError("key is not provided")
        if sum(len(op.value) for op in puts) > MOST_BYTES:
            raise CoordinationError("request is too large")

    def _is_true(self, compare: Compare) -> bool:
        stored = self._keys.get(compare.key)
        if isinstance(compare, Absent):
            return stored is None
        if isinstance(compare, HeldUnder):
            return (stored.lease if stored is not None else 0) == compare.lease
        if stored is None:
            return False
        at = stored.create_revision if isinstance(compare, CreatedAt) else stored.mod_revision
        return at == compare.revision

    def _apply(self, ops: Sequence[Op]) -> None:
        if any(isinstance(op, PutKey) and op.lease and op.lease not in self._leases for op in ops):
            raise LeaseGone("the lease has expired or was revoked")
        events = [event for op in ops if (event := self._carry_out(op, self.revision + 1)) is not None]
        if not events:
            return
        self.revision += 1
        self._history.extend(events)
        if len(self._history) > self._most_history:
            self.compact(self._history[self._most_history // 2].item.mod_revision)
        for notify in tuple(self.changed):
            notify()

    def _carry_out(self, op: Op, revision: int) -> Event | None:
        before = self._keys.pop(op.key, None)
        if before is not None and before.lease in self._leases:
            self._leases[before.lease].keys.discard(op.key)
        if isinstance(op, PutKey):
            created = before.create_revision if before is not None else revision
            stored = KeyValue(op.key, op.value, created, revision, op.lease)
            self._keys[op.key] = stored
            if op.lease:
                self._leases[op.lease].keys.add(op.key)
            return Event("put", stored)
        return None if before is None else Event("delete", KeyValue(op.key, b"", 0, revision, 0))


class _Lease:
    def __init__(self, ttl_s: int, expires_s: float) -> None:
        self.ttl_s = ttl_s
        self.expires_s = expires_s
        self.keys: set[str] = set()
