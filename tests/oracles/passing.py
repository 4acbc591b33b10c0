"""An oracle of fair queueing between tenants whose own quota holds them up. It replays the starts of messages against
token buckets, and adds up the handler time of others that started while a tenant had a token.

A slot that becomes free while a tenant has no token goes to another tenant, which keeps it for its handler's time. No
scheduler can prevent that without interrupted handlers or idle slots. So only starts at which the tenant had a token
count. For backlogged tenants i and j, start-time fair queueing promises in any interval

    passed_ij  <=  T_i w_j / w_i  +  l_i w_j / w_i  +  (gaps_i + 1) l_j

- passed_ij: handler time of the messages of j that start while i has a token
- T_i: handler time of the messages of i that start
- gaps_i: the number of times that i has no token while others start or no handler runs; a gap counts at its end
- w: weight; l: longest message, whose handler time is known at its start

Proof: S is a start tag, V the virtual time, and d = S_i - S_j. While i has a token, its tag changes only by its own
messages. They raise d by T_i / w_i; the messages of j lower it by passed_ij / w_j. Since the lower tag goes first, d
stays between -l_j / w_j and l_i / w_i, which proves the case without gaps. In a gap, d falls with each message of j. At
its end i takes the tag V if its own is lower. This raises d to 0 at most, since no waiting tenant's tag is below V. If
no handler runs, all tags become V. So a gap raises d by l_j / w_j at most.
"""

from collections import defaultdict
from collections.abc import Mapping

SECOND = 1_000_000_000


class Bucket:
    """A token bucket: `rate` tokens per second, at most `size` of them. At `now` (ns) it has `tokens`."""

    def __init__(self, rate: float, size: int, tokens: int, now: int) -> None:
        self._interval = -int(-SECOND // rate)
        self._full = size * self._interval  # levels in ns
        self._level, self._at = tokens * self._interval, now

    def has_token(self, now: int) -> bool:
        self._level, self._at = min(self._full, self._level + now - self._at), now
        return self._level >= self._interval

    def take(self, now: int) -> None:
        assert self.has_token(now), "a message without a token"
        self._level -= self._interval


class Tenant:
    """A tenant with a backlog in each of its groups. `longest` (ns) is its longest message. It has a token if its topic
    has one and one of its groups has.
    """

    def __init__(self, weight: float, longest: int, topic: Bucket, groups: Mapping[str, Bucket]) -> None:
        self.weight, self.longest = weight, longest
        self.topic, self.groups = topic, groups
        self.gaps = 0
        self.in_gap = False

    def has_token(self, now: int) -> bool:
        return self.topic.has_token(now) and any(group.has_token(now) for group in self.groups.values())


class Passing:
    """Who was passed over by whom, start by start. A message counts as its handler's time plus `overhead` (ns).

    The scheduler under test mustn't leave a slot idle while a tenant has a token.
    """

    def __init__(self, tenants: Mapping[str, Tenant], overhead: int = 0) -> None:
        self._tenants, self._overhead = tenants, overhead
        self._busy_until = 0  # when the last handler ends
        self._level: dict[tuple[str, str], float] = defaultdict(float)
        self._lowest: dict[tuple[str, str], float] = defaultdict(float)
        self._excess: dict[tuple[str, str], float] = defaultdict(float)

    def start(self, now: int, name: str, group: str, service: int) -> None:
        """A message of `name` starts at `now`. Its handler takes `service` ns."""
        if now > self._busy_until:
            for tenant in self._tenants.values():
                tenant.in_gap = True
        self._busy_until = max(self._busy_until, now + service)
        cost = service + self._overhead
        for each, tenant in self._tenants.items():
            if each == name:
                continue
            if tenant.has_token(now):
                self._end_gap(each)
                self._move(each, name, cost)
            else:
                tenant.in_gap = True
        starter = self._tenants[name]
        starter.topic.take(now)
        starter.groups[group].take(now)
        self._end_gap(name)
        for each, tenant in self._tenants.items():
            if each != name:
                self._move(name, each, -cost * tenant.weight / starter.weight)

    def excess(self, one: str, other: str) -> float:
        """The most of passed_ij - T_i w_j / w_i - gaps_i l_j (ns) in any interval, for i = `one` and j = `other`."""
        return self._excess[one, other]

    def bound(self, one: str, other: str) -> float:
        """The most that start-time fair queueing allows of `excess`: l_i w_j / w_i + l_j."""
        i, j = self._tenants[one], self._tenants[other]
        return i.longest * j.weight / i.weight + j.longest

    def _end_gap(self, name: str) -> None:
        tenant = self._tenants[name]
        if not tenant.in_gap:
            return
        tenant.in_gap = False
        tenant.gaps += 1
        for each, other in self._tenants.items():
            if each != name:
                self._move(name, each, -other.longest)

    def _move(self, one: str, other: str, by: float) -> None:
        pair = one, other
        level = self._level[pair] = self._level[pair] + by
        lowest = self._lowest[pair] = min(self._lowest[pair], level)
        self._excess[pair] = max(self._excess[pair], level - lowest)
