"""Watches over promises O and Z1 while a simulation runs, by the owner keys in etcd."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.loop import SECOND

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable

    from ring.coordination import Event
    from tests.simulation.history import Bounds, Fault
    from tests.simulation.loop import SimLoop


class Owners:
    """Who owns each partition, and since when. `able_since`: since when some node can own something."""

    def __init__(
        self,
        loop: SimLoop,
        env: str,
        lives: Callable[[int], bool],
        fail: Callable[[str, str], None],
        note: Callable[..., None],
        counts: Counter[str],
        bounds: Bounds,
        faults: list[Fault],
    ) -> None:
        self._loop, self._lives, self._fail, self._note = loop, lives, fail, note
        self._counts, self._bounds, self._faults = counts, bounds, faults
        self._prefix = f"/evenlane/{env}/owners/"
        self._epochs: dict[int, int] = {}  # the newest of each partition
        self._owned: dict[int, tuple[int, int]] = {}  # epoch, lease
        self._since: dict[int, int] = {}
        self._unowned_since: dict[int, int] = {}
        self.without_owner: dict[int, list[tuple[int, int]]] = {}  # from when to when
        self.able_since: int | None = None
        self.gaps: list[int] = []  # of partitions that changed hands while nothing was wrong

    def changed(self, event: Event) -> None:
        key = event.item.key
        if not key.startswith(self._prefix) or not key.removeprefix(self._prefix).isdigit():
            self._note(f"etcd {event.kind}", key=key, value=event.item.value[:160])
            return
        number = int(key.removeprefix(self._prefix))
        if event.kind == "delete":
            self._owned.pop(number, None)
            self._unowned_since[number] = self._loop.now
            self._note("unowned", partition=number)
            return
        item = event.item
        if number not in self._owned:
            self._counts["taken"] += 1
            self._note("owned", partition=number, epoch=item.create_revision, value=item.value.decode())
            self.without_owner.setdefault(number, []).append((self._unowned_since.get(number, 0), self._loop.now))
            self._check_gap(number)
            self._since[number] = self._loop.now
        elif self._owned[number][1] != item.lease:
            self._fail("O", f"the owner key of partition {number} is taken while it is another's")
        self._epochs[number] = item.create_revision
        self._owned[number] = (item.create_revision, item.lease)

    def _check_gap(self, number: int) -> None:
        gap = self.gap(number)
        if gap and number in self._unowned_since:
            self.gaps.append(gap)
        if gap > self._bounds.unowned:
            self._fail("Z1", f"partition {number} was without owner for {gap / SECOND:.3f} s while nothing was wrong")

    def gap(self, number: int) -> int:
        """For how long it has had no owner although somebody could own it and no fault had a hand in it."""
        if number in self._owned or self.able_since is None:
            return 0
        since = max(self._unowned_since.get(number, 0), self.able_since)
        for fault in self._faults:
            if fault.end is None:
                return 0
            since = max(since, fault.end + self._bounds.recovery)
        return max(0, self._loop.now - since)

    def since(self, number: int) -> int:
        """When it was last taken."""
        return self._since.get(number, 0)

    def starts(self, what: str, number: int, epoch: int) -> int:
        """A handler starts under this epoch; the lease behind it, 0 if there is none any more."""
        owned, lease = self._owned.get(number, (0, 0))
        if epoch != self._epochs.get(number):
            self._fail("O", f"{what} starts, though the newest epoch is {self._epochs.get(number)}")
        elif epoch != owned:
            self._fail("O", f"{what} starts, though its owner key is gone")
        elif not self._lives(lease):
            self._fail("O", f"{what} starts after the end of its lease")
        return lease
