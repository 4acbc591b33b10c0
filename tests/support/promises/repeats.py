"""Checks promise D: a fault must explain each repeat of a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.promises.fault_kinds import ETCD_BACK, KINDS, NO_ANSWER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.support.promises.history import Bounds, Fault, Item, Line, Run

_SECOND = 1_000_000_000
_LINGERS = 2 * _SECOND  # late acks may be under way for this long after acks are quick again


class Repeats:
    """Promise D. A message starts a second time under the same sequence only if a fault touched the node of the run
    before, while it ran or before its end could be durable.

    The next attempt of a message that failed and keeps its place (as in ordered topics) is no repeat, nor is a start
    after the message asked for a pause. A failed attempt counts as ended: to start again under the same number needs a
    fault, too.
    """

    def __init__(
        self,
        fail: Callable[[str, str], None],
        bounds: Bounds,
        faults: list[Fault],
        without_owner: Mapping[int, list[tuple[int, int]]],
    ) -> None:
        """`without_owner`: partition -> the spans in which it had no owner."""
        self._fail, self._bounds, self._faults, self._without_owner = fail, bounds, faults, without_owner

    def check(self, what: str, line: Line, name: str, item: Item, attempt: int, *, in_place: bool) -> bool:
        """Return whether the start is a repeat. `in_place`: retries keep the sequence of the message."""
        if not item.runs or line.broken:
            return False
        last = item.runs[-1]
        if item.settled:
            self._fail("D", f"{what} starts again, although it was durably settled")
            return True
        if last.how == "paused" or (last.how == "failed" and in_place and attempt > last.attempt):
            return False
        for fault in self._faults:  # each explains one more start for each node that it hit
            if (fault, last.node) not in item.blamed and self._explains(fault, name, last):
                item.blamed.append((fault, last.node))
                return True
        how = "still runs" if last.end is None else f"ended ({last.how}) at {last.end / _SECOND:.6f} s"
        self._fail("D", f"{what} starts again without a fault that explains it: on {last.node} it {how}")
        return True

    def may_repeat(self, name: str, run: Run) -> bool:
        """Return whether any fault explains that the message of this run is handled again."""
        return any(self._explains(fault, name, run) for fault in self._faults)

    def _explains(self, fault: Fault, name: str, run: Run) -> bool:
        kind = KINDS[fault.kind]
        if kind.is_harmless or fault.node not in {None, run.node} or fault.stream not in {None, name}:
            return False
        after = 0 if fault.kind == "crash" else self._bounds.aftermath
        if kind.loses_answers:
            after += NO_ANSWER
        since = min(self._unsettled_since(fault, run), self._unowned_at(fault, name)) - self._bounds.settle
        return (run.end is None or run.end >= since) and (fault.end is None or run.start <= fault.end + after)

    def _unowned_at(self, fault: Fault, name: str) -> int:
        """The fault's start, or when the partition lost its owner, if no owner could settle what was handed over."""
        spans = self._without_owner.get(int(name.rpartition("_")[2]), ())
        return next((start for start, end in spans if start <= fault.start <= end), fault.start)

    def _unsettled_since(self, fault: Fault, run: Run) -> int:
        """The fault's start, or that of an earlier fault which held up settling when this one came."""
        return min(other.start for other in self._faults if other is fault or self._delays(other, fault, run))

    def _delays(self, other: Fault, fault: Fault, run: Run) -> bool:
        """Whether `other` kept the end of the run from being settled when `fault` began."""
        kind = KINDS[other.kind]
        slows = kind.holds_up_settling and other.node in {None, run.node}
        if not slows and not (kind.hides_handoffs and fault.kind in ETCD_BACK):
            return False
        lasts = other.end is None or other.end + _LINGERS >= fault.start - self._bounds.settle
        return other.start <= fault.start and lasts
