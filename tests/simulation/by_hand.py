"""Histories written by hand, for the tests of the checkers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from evenlane.engine.base import names
from evenlane.engine.core.records import settle_record
from evenlane.engine.core.wire import headers as h
from tests.simulation.loop import SECOND, Actor
from tests.simulation.promises import Promises
from tests.support.promises.history import Bounds, Fault, Rules

if TYPE_CHECKING:
    from collections.abc import Collection

_TOPICS = {
    "shop": Rules(ordered=True, max_attempts=2),
    "plain": Rules(max_attempts=2, dead_letter_expired=True),
    "once": Rules(max_attempts=1),
}
_BOUNDS = Bounds(settle=SECOND // 2, aftermath=3 * SECOND, recovery=9 * SECOND, unowned=3 * SECOND, waiting=3 * SECOND)


class HandWrittenHistory:
    """One partition and its owners, of one cluster. Time passes only in `wait`. `poison` are killers in `shop`, of
    which the `unsteady` ones also fail.
    """

    cluster = "online"
    checkers: type[Promises] = Promises

    def __init__(self, *poison: str, unsteady: Collection[str] = ()) -> None:
        self._now = 1_000 * SECOND
        self._dead_leases: set[int] = set()
        loop: Any = self
        etcd: Any = SimpleNamespace(lives=lambda lease: lease not in self._dead_leases)
        killers = dict.fromkeys(poison, "shop")
        self.promises = self.checkers(
            loop, etcd, self.cluster, _BOUNDS, lambda *_, **__: None, lambda: self._now, _TOPICS, killers, unsteady
        )  # fmt: skip
        self._streams = {
            name: SimpleNamespace(name=name, created="1", last_at=0)
            for name in ("LANES_online_0", "LATER_online_0", *names.own_streams(self.cluster), "DEAD_online")
        }
        self._at: dict[str, int] = {}
        self.epoch = 0

    @property
    def now(self) -> int:
        return self._now

    def time(self) -> float:
        return self._now / SECOND

    def wait(self, seconds: float) -> None:
        self._now += int(seconds * SECOND)

    def owned(self, name: str, epoch: int) -> Actor:
        """The partition gets this owner; the epoch is also the lease."""
        item = SimpleNamespace(key=names.key(self.cluster, "owners", 0), value=b"", create_revision=epoch, lease=epoch)
        changed: Any = self.promises.owners.changed
        if self.epoch:
            changed(SimpleNamespace(kind="delete", item=item))
        changed(SimpleNamespace(kind="put", item=item))
        self.epoch = epoch
        return Actor(name)

    def lease_ends(self, lease: int) -> None:
        self._dead_leases.add(lease)

    def fault(self, kind: str, node: Actor | None = None, by: str | None = None) -> None:
        self.promises.faults.append(Fault(kind, self._now, node, end=self._now, by=by))

    def crash(self, node: Actor) -> None:
        node.dead = True
        self.fault("crash", node)

    def put(self, uid: str, key: str | None = "k", project: str = "shop", expires: int = 0) -> None:
        headers = {h.ID: f"{project}:{uid}"} | ({h.KEY: key} if key else {})
        headers |= {h.EXPIRES: str(expires)} if expires else {}
        self._at[uid] = len(self._at) + 1
        self._store("LANES_online_0", f"lanes.online.0.{project}.0.mid", headers, self._at[uid])

    def delay(self, uid: str, due: int, project: str = "plain") -> None:
        """A message that is due at `due` (unix ns) is stored in the delay stream."""
        headers = {h.ID: f"{project}:{uid}", h.DUE: str(due)}
        self._at[uid] = len(self._at) + 1
        self._store("LATER_online_0", f"later.online.0.{project}.0.mid.1", headers, self._at[uid])

    def remove(self, *uids: str, stream: str = "LANES_online_0") -> None:
        removed: Any = self._streams[stream]
        self.promises.removing(removed, [self._at[uid] for uid in uids])

    def retry(self, uid: str, project: str = "shop") -> None:
        """A copy for a later attempt is stored."""
        self._copy(uid, f"later.online.0.{project}.0.mid.1", project, "LANES_online_0", {})

    def dead(self, uid: str, reason: str, project: str = "shop") -> None:
        self._copy(uid, f"dead.online.{project}", project, "DEAD_online", {h.REASON: reason})

    def _copy(self, uid: str, subject: str, project: str, stream: str, more: dict[str, str]) -> None:
        origin = f"LANES_online_0:{self._at[uid]}"
        headers = {h.ID: f"{project}:{uid}:{origin}:1", h.ORIGIN: origin, **more}
        self._store(stream, subject, headers, 900 + len(self._at))

    def _store(self, name: str, subject: str, headers: dict[str, str], sequence: int) -> None:
        stream: Any = self._streams[name]
        stream.last_at = self._now
        receipt: Any = SimpleNamespace(stream=name, sequence=sequence, duplicate=False)
        self.promises.stored(stream, receipt, subject, h.encode(headers))

    def starts(
        self, uid: str, node: Actor, attempt: int = 1, project: str = "shop", *, suspect: bool = False,
        stream: str = "LANES_online_0",
    ) -> Any:  # fmt: skip
        message: Any = SimpleNamespace(
            id=uid, stream=stream, sequence=self._at[uid], partition=0, epoch=self.epoch, attempt=attempt,
            project=project, is_suspect=suspect,
        )  # fmt: skip
        run = node.context.run(self.promises.starts, message)

        def ends(how: Any = "well", after: float = 0.0) -> None:
            self.promises.ends(message, run, how, after)

        return ends

    def handles(self, uid: str, node: Actor, how: str = "well", attempt: int = 1, project: str = "shop") -> None:
        self.starts(uid, node, attempt, project)(how)

    def settles(self, to: int, *, clean: bool = False, kind: str = "lanes") -> None:
        """The settle log records that the lane is settled up to this sequence and, if `clean`, that the epoch ends."""
        record = settle_record.SettleRecord(
            settle_record.VERSION, self.epoch, 1, "1", 0, 0, to, b"", clean=clean, lease=self.epoch
        )
        self.promises.logged(f"settled.{self.cluster}.{kind}.0", settle_record.encode(record))

    @property
    def broken(self) -> str | None:
        return None if self.promises.broken is None else self.promises.broken.promise
