"""Applies a topic's quota to its groups: guarantees first, then borrowing.

There are two levels of buckets. The topic's bucket admits `qps`; each group's bucket admits `qps / groups`, its
guarantee. Groups within their guarantee come before all others, in turn. With `borrow`, a group beyond its guarantee
takes what its siblings leave: in turn, each up to `max_group_qps`, without moving its own bucket, so that borrowing
doesn't reduce its guarantee.

The guarantees add up to the topic's rate, so if all groups have messages, each gets its share. Since borrowers come
last, a group that wakes within its guarantee waits for at most one interval of the topic per sibling that wakes, too.

Messages within the guarantee count towards the maximum of a group, but never wait for it: a group may be one message
above `max_group_qps` in a window.

`choose` costs at most O(log ready groups), and O(1) while the topic gets less than its quota, however many groups are
empty.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from evenlane.quota.rates.gcra import NEVER, Pace, pace


class Group:
    """The buckets of a group: `at` for its guarantee, `cap_at` for its maximum.

    Invariants:
    - `listed`: it is in the list of groups within their guarantee, or in the heap of those that will be. An entry of a
      group that isn't `ready` any more is removed when it is reached.
    - `in_line`: it is in the line of borrowers, or in the heap of capped ones.
    """

    __slots__ = ("after", "at", "cap_at", "in_line", "listed", "ready")

    def __init__(self) -> None:
        self.at = self.cap_at = 0
        self.ready = False  # has a message to hand out
        self.listed = False
        self.after: Group | None = None  # the next group within its guarantee
        self.in_line = False


G = TypeVar("G", bound=Group)
_UNSET = pace(1.0)  # of a topic without rules, whose messages aren't handed out


class TopicQuota(Generic[G]):
    """The quota of one topic. `ready` is the number of groups with messages, `spent` the number of messages charged
    since the beginning. After `choose` has returned None, `wakes_at` (ns) is the first instant at which it may answer
    differently.

    Invariants:
    - Each listed group is in exactly one place: in the linked list from `_first` to `_last`, which is served in turn,
      or in the heap `_later`, by the instant at which it will be within its guarantee.
    - `_served` is a group whose turn has ended but which is still first; the next `choose` moves it. This saves the
      work if it is the only group.
    - `_line` is None until a group borrows for the first time under these rules. From then on each ready group is in
      `_line`, or in the heap `_capped`.
    """

    __slots__ = (
        "_borrow", "_cap", "_capped", "_count", "_first", "_guarantee", "_last", "_later", "_line", "_pace", "_rests",
        "_served",
        "at", "ready", "spent", "wakes_at",
    )  # fmt: skip

    def __init__(self) -> None:
        self.at = 0
        self.ready = self.spent = 0
        self.wakes_at = NEVER
        self._pace = self._guarantee = _UNSET
        self._cap: Pace | None = None
        self._borrow = False
        self._rests = True  # has no rules yet, or had none for a while
        self._count = 0  # breaks ties: first come, first served
        # Groups within their guarantee: a linked list, since a deque costs 600 bytes per topic.
        self._first: G | None = None
        self._last: G | None = None
        self._served: G | None = None
        self._later: list[tuple[int, int, G]] = []
        self._line: deque[G] | None = None
        self._capped: list[tuple[int, int, G]] = []

    def configure(
        self, qps: float, groups: int, burst: int, now: int, *, borrow: bool, max_group_qps: float, known: list[G],
        whole: float | None = None, batch: int = 0,
    ) -> None:  # fmt: skip
        """Set the rates (msg/s), at once, for the topic and its `known` groups. `whole` is the topic's rate if `qps` is
        only the rate of its groups here; `burst` is the whole topic's. A group may save up `batch` messages, which come
        at once.
        """
        share = max(batch, -(-burst // groups))
        burst += batch
        if self._rests:
            self.at, self._rests = max(self.at, now), False  # another node may have used the burst just now
        before = self._pace, self._guarantee, self._cap
        self._pace, self._guarantee = pace(qps, burst, whole), pace(qps / groups, share)
        self._borrow = borrow and groups > 1
        self._cap = pace(max_group_qps, share) if self._borrow and max_group_qps < qps else None
        if (self._pace, self._guarantee, self._cap) != before:  # otherwise debts stay as they are
            self._retune(known, now, *before)
        self._first = self._last = self._served = self._line = None
        self._later, self._capped = [], []
        for group in known:
            group.listed = group.in_line = False
            if group.ready:
                self._list(group)

    def rest(self) -> None:
        """The topic moves to another node, or has no rules for a while: its credit here is lost."""
        self._rests = True

    def _retune(self, known: list[G], now: int, whole: Pace, guarantee: Pace, cap: Pace | None) -> None:
        self.at = self._pace.retune(self.at, now, whole)
        for group in known:
            group.at = self._guarantee.retune(group.at, now, guarantee)
            if self._cap and cap:  # (messages within the guarantee may exceed the maximum by far: the rest is dropped)
                group.cap_at = min(self._cap.retune(group.cap_at, now, cap), now + self._cap.interval)
            else:
                group.cap_at = 0

    def enter(self, group: G, now: int) -> None:
        """The group has messages again."""
        if self.ready == 0:
            self.at = self._pace.wake(self.at, now)
        self.ready += 1
        group.ready = True
        group.at = self._guarantee.wake(group.at, now)
        if not group.listed:
            self._list(group)
        if self._line is not None and not group.in_line:
            self._line.append(group)
            group.in_line = True

    def leave(self, group: G) -> None:
        """The group has no messages any more."""
        self.ready -= 1
        group.ready = False

    def choose(self, now: int) -> G | None:
        """The group whose message is next; None if none conforms yet."""
        if self.at > now:
            self.wakes_at = self.at
            return None
        later = self._later
        if later and later[0][0] <= now:
            self._bring_in(now)
        first = self._first
        if self._served is not None:
            if first is self._served and first is self._last:
                self._served = None
            else:
                self._end_turn(now)
                first = self._first
        if first is not None and first.ready and first.at <= now:
            return first
        return self._choose(now)

    def _choose(self, now: int) -> G | None:
        """`choose`, where the first group is gone or a group may borrow."""
        while (first := self._first) is not None:
            if first.ready and first.at <= now:
                return first
            self._unlink()
            if first.ready:
                self._defer(first)
            else:
                first.listed = False
        self.wakes_at = self._later[0][0] if self._later else NEVER
        return self._borrower(now) if self._borrow else None

    def affords_at(self, group: G, now: int, count: int) -> int:
        """The instant from which `group` may have `count` messages at once, if its siblings have none; or as many as
        its buckets can save up, if these are fewer.
        """
        topic, own = self._pace.affords_at(self.at, now, count), self._guarantee.affords_at(group.at, now, count)
        if not self._borrow:
            return max(topic, own)
        return topic if self._cap is None else max(topic, min(own, self._cap.affords_at(group.cap_at, now, count)))

    def may_admit(self, group: G, now: int) -> bool:
        """Whether `group` may have one more message right after its last one, for a batch."""
        if self.at > now:
            return False
        if group.at <= now:
            return True
        if not self._borrow or group.cap_at > now:
            return False
        first = self.choose(now)  # it may keep borrowing only if no group within its guarantee waits
        return first is None or first.at > now

    def spend(self, group: G, now: int) -> None:
        """Charge one message of `group`."""
        topic_at, at = self.at, group.at
        self.spent += 1
        # (`Pace.spend` twice, inlined to save two calls per message)
        own = self._pace
        floor = now - own.late
        self.at = (topic_at if topic_at > floor else floor) + own.interval
        if at <= now:
            own = self._guarantee
            floor = now - own.late
            group.at = (at if at > floor else floor) + own.interval
            self._served = group
        elif self._line and self._line[0] is group:
            self._line.rotate(-1)
        if self._cap is not None:
            group.cap_at = self._cap.spend(group.cap_at, now)

    def refund(self, group: G, count: int) -> None:
        """Refund `count` messages of `group` that were charged in vain. Borrowed ones become part of its guarantee.
        O(ready groups).
        """
        self.spent -= count
        self.at -= count * self._pace.interval
        group.at -= count * self._guarantee.interval
        if self._cap is not None:
            group.cap_at -= count * self._cap.interval
        # its entries in the heaps may have instants that are too late now
        self._later = [(entry[2].at, *entry[1:]) if entry[2] is group else entry for entry in self._later]
        self._capped = [(entry[2].cap_at, *entry[1:]) if entry[2] is group else entry for entry in self._capped]
        heapify(self._later)
        heapify(self._capped)

    # ---- guarantees

    def _list(self, group: G) -> None:
        group.listed = True
        group.after = None
        if self._last is None:
            self._first = self._last = group
        else:
            self._last.after = self._last = group

    def _unlink(self) -> None:
        """Remove the first group."""
        first = self._first
        assert first is not None
        self._first = first.after  # type: ignore[assignment]
        if self._first is None:
            self._last = None

    def _end_turn(self, now: int) -> None:
        """Move the group that was served to the end, or defer it until it is within its guarantee again."""
        served, self._served = self._served, None
        if served is not self._first or served is None or not served.ready:
            return
        if served.at > now:
            self._unlink()
            self._defer(served)
        elif served is not self._last:
            self._unlink()
            self._list(served)

    def _defer(self, group: G) -> None:
        self._count += 1
        heappush(self._later, (group.at, self._count, group))

    def _bring_in(self, now: int) -> None:
        later = self._later
        while later and later[0][0] <= now:
            group = heappop(later)[2]
            if not group.ready:
                group.listed = False
            elif group.at > now:
                self._defer(group)
            else:
                self._list(group)

    # ---- borrowing

    def _borrower(self, now: int) -> G | None:
        line = self._line
        if line is None:  # no group is within its guarantee, so all that may borrow are in `_later`
            line = self._line = deque(entry[2] for entry in sorted(self._later) if entry[2].ready)
            for waiting in line:
                waiting.in_line = True
        capped = self._capped
        while capped and capped[0][0] <= now:
            line.append(heappop(capped)[2])
        while line:
            group = line[0]
            if not group.ready:
                line.popleft()
                group.in_line = False
            elif group.cap_at > now:
                self._count += 1
                heappush(capped, (group.cap_at, self._count, line.popleft()))
            else:
                return group
        if capped:
            self.wakes_at = min(self.wakes_at, capped[0][0])
        return None
