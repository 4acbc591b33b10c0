"""A topic's quota over its groups: guarantee first, then borrowing.

Two levels of buckets. The topic's own admits `qps`. Each group's admits `qps / groups`, its guarantee. A group
inside its guarantee comes before all that are not, the one that has waited longest for it first (its `at` is the
lowest). With `borrow`, a group beyond its guarantee takes what its siblings leave: groups in turn, each up to
`max_group_qps`, without moving its own bucket, so that a loan costs it nothing of its guarantee.

The guarantees add up to the topic's rate, so as long as all groups ask, earliest first gives each its share; and
since borrowers come last, a group that wakes inside its guarantee waits for one interval of the topic at the most.

`choose` costs O(log ready groups), whatever the number of groups that have nothing.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush, heapreplace
from typing import Generic, TypeAlias, TypeVar

from quota.gcra import NEVER, Pace


class Group:
    """A group's buckets. `at` is its guarantee's, `cap_at` that of what it may have at the most."""

    __slots__ = ("at", "cap_at", "in_line", "listed", "ready")

    def __init__(self) -> None:
        self.at = self.cap_at = 0
        self.ready = False  # it has something to hand out
        self.listed = False  # it stands in the order of guarantees, perhaps with an earlier `at`
        self.in_line = False  # it stands in the line of borrowers, or among the capped


G = TypeVar("G", bound=Group)
_UNSET = Pace(1.0)  # of a topic that isn't known yet, of which nothing is asked


# What one message changed, so that it can be given back (E10): the group; before it, the topic's `at`, the group's
# `at` and `cap_at`; and whether it was borrowed. (A named tuple would cost a fifth of a decision.)
Spent: TypeAlias = tuple[G, int, int, int, bool]


class TopicQuota(Generic[G]):
    """`ready` counts the groups that have something. After `choose` gave None, `wakes_at` (ns) is the first
    instant at which it may answer otherwise.
    """

    __slots__ = (
        "_borrow", "_cap", "_capped", "_count", "_guarantee", "_line", "_order", "_pace", "at", "ready", "wakes_at",
    )  # fmt: skip

    def __init__(self) -> None:
        self.at = 0
        self.ready = 0
        self.wakes_at = NEVER
        self._pace = self._guarantee = _UNSET
        self._cap: Pace | None = None
        self._borrow = False
        self._count = 0  # breaks ties: first come, first served
        self._order: list[tuple[int, int, G]] = []
        # Made when somebody borrows for the first time: an empty deque costs 600 bytes for each topic.
        self._line: deque[G] | None = None
        self._capped: list[tuple[int, int, G]] = []

    def configure(
        self, qps: float, groups: int, burst: int, now: int, *, borrow: bool, max_group_qps: float, known: list[G]
    ) -> None:
        """New rates, msg/s, at once for the topic and its `known` groups."""
        share = -(-burst // groups)
        self._pace, self._guarantee = Pace(qps, burst), Pace(qps / groups, share)
        self._borrow = borrow and groups > 1
        self._cap = Pace(max_group_qps, share) if self._borrow and max_group_qps < qps else None
        self.at = self._pace.retuned(self.at, now)
        self._order, self._line, self._capped = [], None, []
        for group in known:
            group.at = self._guarantee.retuned(group.at, now)
            group.cap_at = self._cap.retuned(group.cap_at, now) if self._cap else 0
            group.listed = group.in_line = False
            if group.ready:
                self._list(group)

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
        order = self._order
        if order:
            at, _, first = order[0]
            if at <= now and at == first.at and first.ready:
                return first
        return self._choose(now)

    def _choose(self, now: int) -> G | None:
        """As `choose`, where the order has to be brought up to date first, or somebody may borrow."""
        first = self._first()
        if first is None:
            self.wakes_at = NEVER
            return None
        if first.at <= now:
            return first
        self.wakes_at = first.at
        return self._borrower(now) if self._borrow else None

    def admits(self, group: G, now: int) -> bool:
        """Whether `group` may have one more message right after its last, for a batch."""
        if self.at > now:
            return False
        if group.at <= now:
            return True
        first = self._first()
        return self._borrow and group.cap_at <= now and (first is None or first.at > now)

    def spend(self, group: G, now: int) -> Spent[G]:
        """Charge one message of `group`."""
        topic_at, at, cap_at = self.at, group.at, group.cap_at
        borrowed = at > now
        # (`Pace.spent` twice, without the price of two calls)
        pace = self._pace
        floor = now - pace.late
        self.at = (topic_at if topic_at > floor else floor) + pace.interval
        if not borrowed:
            pace = self._guarantee
            floor = now - pace.late
            group.at = (at if at > floor else floor) + pace.interval
        elif self._line and self._line[0] is group:
            self._line.rotate(-1)
        if self._cap is not None:
            group.cap_at = self._cap.spent(cap_at, now)
        return group, topic_at, at, cap_at, borrowed

    def give_back(self, spent: Spent[G]) -> None:
        """Undo the last `spend`."""
        group, self.at, at, cap_at, borrowed = spent
        group.at, group.cap_at = at, cap_at
        if borrowed and self._line and self._line[-1] is group:
            self._line.rotate(1)

    def _list(self, group: G) -> None:
        self._count += 1
        group.listed = True
        heappush(self._order, (group.at, self._count, group))

    def _first(self) -> G | None:
        """The ready group with the lowest `at`. Entries are brought up to date when they come to the top."""
        order = self._order
        while order:
            at, _, group = order[0]
            if not group.ready:
                heappop(order)
                group.listed = False
            elif group.at > at:
                self._count += 1
                heapreplace(order, (group.at, self._count, group))
            else:
                return group
        return None

    def _borrower(self, now: int) -> G | None:
        line = self._line
        if line is None:
            line = self._line = deque(entry[2] for entry in sorted(self._order) if entry[2].ready)
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
