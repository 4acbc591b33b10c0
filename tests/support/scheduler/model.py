"""A naive model of one topic: what it may do at an instant, worked out from all that it was ever given.

The product keeps one number a bucket; this keeps every admission. It doesn't say what the scheduler must answer,
but what it must never do (promise Q) and when it must not refuse (promise W).
"""

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction

from evenlane.quota.rates.gcra import Pace
from evenlane.quota.topics.topic import Topic
from tests.oracles.limiter import Changing, excess
from tests.support.scheduler.parts import MAX_GROUP_QPS, Queue

ROUNDING = 1e-6
"""messages: 1 / rate is worked out in floating point."""


class Strict:
    """The latest instant from which a bucket may admit the next message: GCRA with no lateness forgiven."""

    def __init__(self, interval: int, burst: int, now: int) -> None:
        self.interval, self.burst = interval, burst
        self.times: list[int] = []
        self._since = now  # it begins without credit, and an earlier rule may have left a debt
        self._known: tuple[tuple[int, ...], int] | None = None  # the answer for so many times up to the last

    def retune(self, interval: int, burst: int, now: int) -> None:
        """No credit is carried over, and a debt stays as many messages as it was (X4)."""
        self._since = now + -(-max(0, self.earliest() - now) * interval // self.interval)
        self.interval, self.burst, self.times, self._known = interval, burst, [], None

    def earliest(self) -> int:
        count = len(self.times)
        state = (count, *self.times[-1:])
        if self._known is None or self._known[0] != state:
            left = [at + (count - n + 1 - self.burst) * self.interval for n, at in enumerate(self.times)]
            self._known = state, max([self._since + count * self.interval, *left])
        return self._known[1]


def interval_of(rate: float) -> int:
    return Pace(rate).interval


def forgiven(burst: int) -> int:
    """Messages beyond rate * w that a bucket may admit in a window of w (quota/rates/gcra.py)."""
    return max(burst - 1, 1) + 1


@dataclass
class Life:
    """A topic under all the rules that it had so far. `got`: what was due when each message was admitted."""

    topic: Topic
    now: int
    bucket: Strict = field(init=False)
    groups: dict[int, Strict] = field(default_factory=dict)
    got: list[Fraction] = field(default_factory=list)
    group_got: dict[int, list[Fraction]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        self.bucket = Strict(interval_of(self.topic.qps), self.topic.burst, self.now)
        self.due = Changing(self.topic.qps, self.now)
        self.group_due = Changing(self.group_rate, self.now)
        self.most_burst = self.topic.burst
        self.most_of_group = self.group_allowance
        self.changed = self.now

    @property
    def borrows(self) -> bool:
        return self.topic.borrow and self.topic.groups > 1

    @property
    def group_rate(self) -> float:
        """What one group may have at the most."""
        return min(MAX_GROUP_QPS, self.topic.qps) if self.borrows else self.topic.qps / self.topic.groups

    @property
    def share(self) -> int:
        return -(-self.topic.burst // self.topic.groups)

    @property
    def group_allowance(self) -> int:
        """Messages beyond its rate that a group may get in any window."""
        if not self.borrows:
            return forgiven(self.share)
        # A loan asks the cap, the guarantee doesn't: each may come on top of the other once.
        return forgiven(self.topic.burst) if self.topic.qps <= MAX_GROUP_QPS else 2 * forgiven(self.share)

    def change(self, topic: Topic, now: int) -> None:
        before, self.topic = self.topic, topic
        if (before.qps, before.groups, before.burst, before.borrow) == (
            topic.qps, topic.groups, topic.burst, topic.borrow,
        ):  # fmt: skip
            return  # debts stand
        self.bucket.retune(interval_of(topic.qps), topic.burst, now)
        self.most_burst = max(self.most_burst, topic.burst)
        # What is left of a burst may be worth a burst at the new pace.
        self.due.change(topic.qps, now, extra=self.most_burst)
        self.group_due.change(self.group_rate, now, extra=2 * self.most_burst)
        self.most_of_group = max(self.most_of_group, self.group_allowance)
        self.changed = now
        for group in self.groups:  # its guarantee and its cap are different buckets: which one it owes is open
            interval = interval_of(self.group_rate)
            self.groups[group] = Strict(interval, self.share, now + interval)

    def admit(self, group: int, now: int) -> None:
        self.got.append(self.due(now))
        self.group_got[group].append(self.group_due(now))
        self.bucket.times.append(now)
        self._group(group).times.append(now)

    def undo(self, group: int) -> None:
        for record in (self.got, self.group_got[group], self.bucket.times, self._group(group).times):
            record.pop()

    def conforms_from(self, ready: set[int]) -> int:
        """The latest instant at which one of the groups that are ready must be let through."""
        return max(self.bucket.earliest(), min(self._group(group).earliest() for group in ready))

    def check_windows(self) -> None:
        """Promise Q for the topic, E3 for its groups."""
        most = forgiven(self.most_burst)
        assert excess(self.got) <= most + ROUNDING, f"over {most} beyond the quota: {_shown(self.got)}"
        allowed = self.most_of_group
        for group, got in self.group_got.items():
            assert excess(got) <= allowed + ROUNDING, f"group {group}: over {allowed} beyond its rate: {_shown(got)}"

    def _group(self, group: int) -> Strict:
        if group not in self.groups:
            self.groups[group] = Strict(interval_of(self.group_rate), self.share, self.changed)
        return self.groups[group]


def _shown(due: list[Fraction]) -> list[float]:
    return [round(float(each), 3) for each in due]


@dataclass
class Project:
    """What the test has told about one project, and what it was given."""

    name: str
    life: Life | None = None  # it stays over a deletion: to delete a topic gains nothing
    known: bool = False
    ready: set[tuple[int, int]] = field(default_factory=set)
    flying: list[tuple[Queue, int]] = field(default_factory=list)  # slots, with the messages of each
    last_active: int | None = None  # the last instant at which it wanted a slot or held one, ns

    @property
    def open(self) -> bool:
        return self.known and self.life.topic.state != "paused"

    @property
    def active(self) -> bool:
        return bool(self.flying or (self.open and self.ready))

    @property
    def running(self) -> int:
        return sum(count for _, count in self.flying)

    @property
    def full(self) -> bool:
        most = self.life.topic.concurrency
        return most is not None and self.running >= most

    def heads(self) -> set[tuple[int, int]]:
        """The highest ready band of each group."""
        return {(group, min(band for each, band in self.ready if each == group)) for group, _ in self.ready}

    def conforms_from(self) -> int:
        return self.life.conforms_from({group for group, _ in self.ready})
