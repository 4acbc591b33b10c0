"""A topic's quota over its groups: guarantee first, then borrowing.

Two levels of buckets. The topic's own admits `qps`. Each group's admits `qps / groups`, its guarantee. Groups inside
their guarantee come before all that are not, in turn. With `borrow`, a group beyond its guarantee takes what its
siblings leave: groups in turn, each up to `max_group_qps`, without moving its own bucket, so that a loan costs it
nothing of its guarantee.

The guarantees add up to the topic's rate, so as long as all groups ask, each gets its share; and since borrowers come
last, a group that wakes inside its guarantee waits for one interval of the topic at the most for each sibling that
does so, too.

What a group gets inside its guarantee counts towards its most, but never waits for it: a group may be one message
above `max_group_qps` in a window.

`choose` costs O(log ready groups) at the most, and O(1) while the topic gets less than its quota, whatever the number
of groups that have nothing.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from evenlane.quota.rates.gcra import NEVER, Pace, pace


class Group:
    """A group's buckets. `at` is its guarantee's, `cap_at` that of what it may have at the most."""

    __slots__ = ("after", "at", "cap_at", "in_line", "listed", "ready")

    def __init__(self) -> None:
        self.at = self.cap_at = 0
        self.ready = False  # it has something to hand out
        self.listed = False  # it stands among those inside their guarantee, or in the heap of those who will be
        self.after: Group | None = None  # who comes next inside the guarantee
        self.in_line = False  # it stands in the line of borrowers, or among the capped


G = TypeVar("G", bound=Group)
_UNSET = pace(1.0)  # of a topic that isn't known yet, of which nothing is asked


class TopicQuota(Generic[G]):
    """`ready` counts the groups that have something, `spent` the messages charged since the beginning. After `choose`
    gave None, `wakes_at` (ns) is the first instant at which it may answer otherwise.
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
        self._rests = True  # it has no rules yet, or had none for a while
        self._count = 0  # breaks ties: first come, first served
        # Inside their guarantee: a linked list, since a deque costs 600 bytes for each topic.
        self._first: G | None = None
        self._last: G | None = None
        self._served: G | None = None  # the first has had its turn
        self._later: list[tuple[int, int, G]] = []  # those beyond it, by when they will be inside
        self._line: deque[G] | None = None  # of borrowers; made when somebody borrows for the first time
        self._capped: list[tuple[int, int, G]] = []

    def configure(
        self, qps: float, groups: int, burst: int, now: int, *, borrow: bool, max_group_qps: float, known: list[G],
        whole: float | None = None,
    ) -> None:  # fmt: skip
        """New rates, msg/s, at once for the topic and its `known` groups. `whole`: the topic's rate, of which `qps` is
        what its groups here have; `burst` is the whole topic's.
        """
        share = -(-burst // groups)
        if self._rests:
            self.at, self._rests = max(self.at, now), False  # another node may have had its burst just now
        before = self._pace, self._guarantee, self._cap
        self._pace, self._guarantee = pace(qps, burst, whole), pace(qps / groups, share)
        self._borrow = borrow and groups > 1
        self._cap = pace(max_group_qps, share) if self._borrow and max_group_qps < qps else None
        if (self._pace, self._guarantee, self._cap) != before:  # else their debts stand
            self._retune(known, now, *before)
        self._first = self._last = self._served = self._line = None
        self._later, self._capped = [], []
        for group in known:
            group.listed = group.in_line = False
            if group.ready:
                self._list(group)

    def rest(self) -> None:
        """The topic goes elsewhere, or has no rules for a while: what it saved up here is forgotten."""
        self._rests = True

    def _retune(self, known: list[G], now: int, whole: Pace, guarantee: Pace, cap: Pace | None) -> None:
        self.at = self._pace.retuned(self.at, now, whole)
        for group in known:
            group.at = self._guarantee.retuned(group.at, now, guarantee)
            if self._cap and cap:  # (what it had inside its guarantee may be far above its most: that is forgiven)
                group.cap_at = min(self._cap.retuned(group.cap_at, now, cap), now + self._cap.interval)
            else:
                group.cap_at = 0

    def enter(self, group: G, now: int) -> None:
        """The group has something to hand out, and hadn't before."""
        if self.ready == 0:
            self.at = self._pace.woken(self.at, now)
        self.ready += 1
        group.ready = True
        group.at = self._guarantee.woken(group.at, now)
        if not group.listed:
            self._list(group)
        if self._line is not None and not group.in_line:
            self._line.append(group)
            group.in_line = True

    def leave(self, group: G) -> None:
        """The group has nothing any more."""
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
        """As `choose`, where the first has gone, or somebody may borrow."""
        while (first := self._first) is not None:
            if first.ready and first.at <= now:
                return first
            self._unlink()
            if first.ready:
                self._put_off(first)
            else:
                first.listed = False
        self.wakes_at = self._later[0][0] if self._later else NEVER
        return self._borrower(now) if self._borrow else None

    def admits(self, group: G, now: int) -> bool:
        """Whether `group` may have one more message right after its last, for a batch."""
        if self.at > now:
            return False
        if group.at <= now:
            return True
        if not self._borrow or group.cap_at > now:
            return False
        first = self.choose(now)  # it borrows on only if nobody waits inside the guarantee
        return first is None or first.at > now

    def spend(self, group: G, now: int) -> None:
        """Charge one message of `group`."""
        topic_at, at = self.at, group.at
        self.spent += 1
        # (`Pace.spent` twice, without the price of two calls)
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
            group.cap_at = self._cap.spent(group.cap_at, now)

    def refund(self, group: G, count: int) -> None:
        """So many messages of `group` were charged in vain. What it had borrowed becomes part of its guarantee. Costs
        O(ready groups).
        """
        self.spent -= count
        self.at -= count * self._pace.interval
        group.at -= count * self._guarantee.interval
        if self._cap is not None:
            group.cap_at -= count * self._cap.interval
        # it may stand among those who wait, under an instant that is too late
        self._later = [(entry[2].at, *entry[1:]) if entry[2] is group else entry for entry in self._later]
        self._capped = [(entry[2].cap_at, *entry[1:]) if entry[2] is group else entry for entry in self._capped]
        heapify(self._later)
        heapify(self._capped)

    # ---- inside the guarantee, and beyond it

    def _list(self, group: G) -> None:
        group.listed = True
        group.after = None
        if self._last is None:
            self._first = self._last = group
        else:
            self._last.after = self._last = group

    def _unlink(self) -> None:
        """Take the first out."""
        first = self._first
        assert first is not None
        self._first = first.after  # type: ignore[assignment]
        if self._first is None:
            self._last = None

    def _end_turn(self, now: int) -> None:
        """Whoever was served goes to the end, or waits until it is inside its guarantee again."""
        served, self._served = self._served, None
        if served is not self._first or served is None or not served.ready:
            return
        if served.at > now:
            self._unlink()
            self._put_off(served)
        elif served is not self._last:
            self._unlink()
            self._list(served)

    def _put_off(self, group: G) -> None:
        self._count += 1
        heappush(self._later, (group.at, self._count, group))

    def _bring_in(self, now: int) -> None:
        later = self._later
        while later and later[0][0] <= now:
            group = heappop(later)[2]
            if not group.ready:
                group.listed = False
            elif group.at > now:
                self._put_off(group)
            else:
                self._list(group)

    # ---- borrowing

    def _borrower(self, now: int) -> G | None:
        line = self._line
        if line is None:  # nobody is inside: those who may borrow all stand in the heap
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
