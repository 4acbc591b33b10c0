"""Checks promises O and Z1 while a simulation runs, by the owner keys in etcd.

An etcd that is rolled back loses owners that can't know it yet. O then says: a lost owner may start handlers until its
lease would have ended, and until another owner has started one; no other owner starts any as long as a lost one may.
So there is one owner at each moment, as always, but etcd doesn't name it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.base import names
from tests.simulation.loop import SECOND
from tests.support.promises.epochs import Epochs
from tests.support.promises.owner_keys import OwnerKeys

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Hashable, Iterable

    from evenlane.ring.coordination.ports import Event, KeyValue
    from tests.simulation.loop import SimLoop
    from tests.support.promises.history import Bounds, Fault, Line


class RolledBack(NamedTuple):
    """An owner that etcd has lost; its lease would have ended at `until`."""

    epoch: int
    lease: int
    until: int


class Owners:
    """The owner of each partition of a cluster, and the time since when. `able_since`: since when any node can own
    partitions.
    """

    def __init__(
        self,
        loop: SimLoop,
        cluster: str,
        lives: Callable[[int], bool],
        fail: Callable[[str, str], None],
        note: Callable[..., None],
        counts: Counter[str],
        bounds: Bounds,
        faults: list[Fault],
    ) -> None:
        self._loop, self._lives, self._fail, self._note = loop, lives, fail, note
        self._counts, self._bounds, self._faults = counts, bounds, faults
        self._prefix = names.key(cluster, "owners", "")
        self._keys = OwnerKeys()
        self._begun = Epochs()
        self._epochs: dict[int, int] = {}  # the newest of each partition
        self._owned: dict[int, tuple[int, int]] = {}  # epoch, lease
        self._rolled_back: dict[int, list[RolledBack]] = {}
        self._covered_until: dict[tuple[int, int], int] = {}  # of owners that etcd has lost
        self._ended: set[tuple[int, int, int]] = set()  # partition, epoch, lease: over, even if etcd has it again
        self._since: dict[int, int] = {}
        self._unowned_since: dict[int, int] = {}
        self.without_owner: dict[int, list[tuple[int, int]]] = {}  # spans of time
        self.able_since: int | None = None
        self.gaps: list[int] = []  # of partitions that changed owners while nothing was wrong

    def changed(self, event: Event) -> None:
        key = event.item.key
        if not key.startswith(self._prefix) or not key.removeprefix(self._prefix).isdigit():
            return
        number = int(key.removeprefix(self._prefix))
        gone = event.kind == "delete"
        if wrong := self._keys.changed(number, None if gone else (event.item.create_revision, event.item.lease)):
            self._fail("O", f"the owner key of partition {number} {wrong}")
        if gone:
            self._ended.add((number, *self._owned.pop(number, (0, 0))))
            self._unowned_since[number] = self._loop.now
            self._note("unowned", partition=number)
            return
        item, epoch = event.item, _epoch(event.item)
        if number not in self._owned:
            self._counts["taken"] += 1
            self._note("owned", partition=number, epoch=epoch, value=item.value.decode())
            self.without_owner.setdefault(number, []).append((self._unowned_since.get(number, 0), self._loop.now))
            self._check_gap(number)
            self._since[number] = self._loop.now
        self._epochs[number] = epoch
        self._owned[number] = (epoch, item.lease)

    def went_back(self, keys: Iterable[KeyValue], until: Callable[[int], int]) -> None:
        """etcd has only these keys again. `until(lease)`: when a lease that it had before would have ended."""
        before, self._owned = self._owned, {}
        created: dict[Hashable, tuple[int, int]] = {}
        for item in keys:
            if item.key.startswith(self._prefix) and item.key.removeprefix(self._prefix).isdigit():
                number = int(item.key.removeprefix(self._prefix))
                self._owned[number] = (_epoch(item), item.lease)
                self._epochs[number] = _epoch(item)
                created[number] = (item.create_revision, item.lease)
        self._keys.went_back(created)
        for number, (epoch, lease) in before.items():
            if self._owned.get(number) != (epoch, lease) and (number, epoch, lease) not in self._ended:
                self._rolled_back.setdefault(number, []).append(RolledBack(epoch, lease, until(lease)))
                self._covered_until[epoch, lease] = until(lease)
                self._counts["lost owners"] += 1
        for number, owned in self._owned.items():  # an owner that it had lost is back
            self._rolled_back[number] = [each for each in self._rolled_back.get(number, ()) if each[:2] != owned]
        for number in self._owned.keys() - before.keys():  # until now no node could settle anything
            self.without_owner.setdefault(number, []).append((self._unowned_since.get(number, 0), self._loop.now))
        for number in before.keys() - self._owned.keys():
            self._unowned_since[number] = self._loop.now

    def _check_gap(self, number: int) -> None:
        gap = self.gap(number)
        if gap and number in self._unowned_since:
            self.gaps.append(gap)
        if gap > self._bounds.unowned:
            self._fail("Z1", f"partition {number} was without owner for {gap / SECOND:.3f} s while nothing was wrong")

    def gap(self, number: int) -> int:
        """The time (ns) for which the partition has had no owner, although a node could own it and no fault was the
        cause.
        """
        if number in self._owned or self.able_since is None:
            return 0
        since = max(self._unowned_since.get(number, 0), self.able_since)
        for fault in self._faults:
            if fault.end is None:
                return 0
            since = max(since, fault.end + self._bounds.recovery)
        return max(0, self._loop.now - since)

    def since(self, number: int) -> int:
        """The time at which the partition got its owner."""
        return self._since.get(number, 0)

    def covers(self, epoch: int, lease: int) -> bool:
        """Whether a handler under this epoch and lease still excludes all others."""
        return self._lives(lease) and self._loop.now < self._covered_until.get((epoch, lease), self._loop.now + 1)

    def starts(self, what: str, number: int, epoch: int, line: Line) -> int:
        """A handler starts under this epoch. Return the lease behind it, 0 if it has ended."""
        if not self._begun.record_start(number, epoch):
            self._fail("O", f"{what} starts, although a handler has started under a newer epoch")
        owned, lease = self._owned.get(number, (0, 0))
        if (rolled_back := self._may_serve(number, epoch)) is not None:
            return rolled_back.lease
        if epoch != self._epochs.get(number):
            self._fail("O", f"{what} starts, although the newest epoch is {self._epochs.get(number)}")
        elif epoch != owned:
            self._fail("O", f"{what} starts, although its owner key is gone")
        elif not self._lives(lease):
            self._fail("O", f"{what} starts after the end of its lease")
        elif other := self._rival(number, epoch, line):
            self._fail("O", f"{what} starts, although the lost owner of epoch {other.epoch} still may")
        self._rolled_back.pop(number, None)
        return lease

    def _may_serve(self, number: int, epoch: int) -> RolledBack | None:
        """The lost owner of this epoch, if it may still start handlers."""
        if self._owned.get(number, (0, 0))[0] == epoch:
            return None
        among = self._rolled_back.get(number, ())
        return next((each for each in among if each.epoch == epoch and self._loop.now < each.until), None)

    def _rival(self, number: int, epoch: int, line: Line) -> RolledBack | None:
        """A lost owner that has written to the stream's log, may still start handlers, and hasn't ended cleanly."""
        among = [each for each in self._rolled_back.get(number, ()) if each.epoch != epoch]
        return next((each for each in among if self._loop.now < each.until and each[:2] in line.served_by), None)


def _epoch(item: KeyValue) -> int:
    """The key's create-revision, plus a base that only owners after a rollback of etcd have."""
    base = json.loads(item.value).get("base", 0) if b'"base"' in item.value else 0
    return int(base) + item.create_revision
