"""Watches over promise D while a simulation runs: what is handled again, and whether a fault explains it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.loop import SECOND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.simulation.history import Bounds, Fault, Item, Line, Run

HARMLESS = frozenset(
    {"watches dropped", "etcd leader", "compaction", "second leader", "acks late", "corrupt key", "clock jump"}
)
"""Faults after which nothing may be handled twice: all goes on, only later."""
SLOWING = frozenset({"acks late", "acks never", "copies refused", "nats cut", "nats down", "nats flaky"})
"""Faults that hold up settles, so that another one meanwhile hits more of them."""
UNANSWERED = frozenset({"acks never", "nats cut", "nats down", "nats flaky"})
BACK = frozenset({"etcd restored", "etcd wiped"})
"""Etcd forgets what it was told last."""
UNNOTICED = SLOWING | {"etcd cut", "etcd silent", "etcd flaky", "pause"}
"""Faults, of whatever node, that keep a new owner from settling what the former one says in etcd of what it held."""
NO_ANSWER = 6 * SECOND
"""Only after that long does a node learn that what it asked has been lost."""
LINGERS = 2 * SECOND  # late acks may be under way for so long when acks are quick again


class Repeats:
    """Each second start of a message under the same sequence needs a fault that touched the first one's node while it
    ran or before its end could be durable; but for the next attempt of one that failed and stays where it is (the one
    of a key that has an order), and for one that asked for a pause. Attempts that failed count as ended: one that is
    made again under the same number needs a fault, too.
    """

    def __init__(
        self,
        fail: Callable[[str, str], None],
        bounds: Bounds,
        faults: list[Fault],
        without_owner: Mapping[int, list[tuple[int, int]]],
    ) -> None:
        self._fail, self._bounds, self._faults, self._without_owner = fail, bounds, faults, without_owner

    def check(self, what: str, line: Line, name: str, item: Item, attempt: int) -> bool:
        """Whether it is a repeat."""
        if not item.runs or line.broken:
            return False
        last = item.runs[-1]
        if item.settled:
            self._fail("D", f"{what} starts again, though it was durably settled")
            return True
        if last.how == "paused":
            return False
        if last.how == "failed" and item.chain is not None and attempt > last.attempt:
            return False
        for fault in self._faults:  # each explains one more start for each node that it hit
            if (fault, last.node) not in item.blamed and self._explains(fault, name, last):
                item.blamed.append((fault, last.node))
                return True
        how = "still runs" if last.end is None else f"ended ({last.how}) at {last.end / SECOND:.6f} s"
        self._fail("D", f"{what} starts again without a fault that explains it: on {last.node} it {how}")
        return True

    def _explains(self, fault: Fault, name: str, run: Run) -> bool:
        """Whether the fault touched the former run's node while it ran, or before its end could be settled."""
        if fault.kind in HARMLESS or fault.node not in {None, run.node} or fault.stream not in {None, name}:
            return False
        after = 0 if fault.kind == "crash" else self._bounds.aftermath
        if fault.kind in UNANSWERED:
            after += NO_ANSWER
        since = min(self._unsettled_since(fault, run), self._unowned_at(fault, name)) - self._bounds.settle
        return (run.end is None or run.end >= since) and (fault.end is None or run.start <= fault.end + after)

    def _unowned_at(self, fault: Fault, name: str) -> int:
        """The fault's start, or when the partition lost its owner, if nobody could settle what was handed over."""
        spans = self._without_owner.get(int(name.rpartition("_")[2]), ())
        return next((start for start, end in spans if start <= fault.start <= end), fault.start)

    def _unsettled_since(self, fault: Fault, run: Run) -> int:
        """The fault's start, or that of others by which settles were held up when it came."""
        return min(
            other.start
            for other in self._faults
            if other is fault
            or (
                (
                    (other.kind in SLOWING and other.node in {None, run.node})
                    or (other.kind in UNNOTICED and fault.kind in BACK)
                )
                and other.start <= fault.start
                and (other.end is None or other.end + LINGERS >= fault.start - self._bounds.settle)
            )
        )
