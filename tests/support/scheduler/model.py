"""A naive model of one topic, which computes from all earlier admissions whether it may have another message.

The product keeps one number per bucket; the model keeps every admission. It doesn't predict the scheduler's answers.
It states what the scheduler must never do (promise Q) and when it must not refuse (promise W).
"""

from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction

from evenlane.quota.rates.gcra import Pace
from evenlane.quota.topics.topic import Topic
from tests.oracles.limiter import Changing, excess
from tests.support.scheduler.parts import MAX_GROUP_QPS, Queue

ROUNDING = 1e-6
"""Messages; 1 / rate is computed in floating point."""


class Strict:
    """The latest instant at which a bucket must admit the next message: GCRA without credit for lateness."""

    def __init__(self, interval: int, burst: int, now: int) -> None:
        self.interval, self.burst = interval, burst
        self.times: list[int] = []
        self._since = now  # it begins without credit; an earlier rule may have left a debt
        self._known: tuple[tuple[int, ...], int] | None = None  # the number of times, the last one, and the answer

    def retune(self, interval: int, burst: int, now: int) -> None:
        """Drop the credit, and keep the debt as a number of messages (X4)."""
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
class TopicModel:
    """A topic under all the rules that it has had so far. `admitted`: what was due when each message was admitted;
    `group_admitted`: the same for each group.
    """

    topic: Topic
    now: int
    bucket: Strict = field(init=False)
    groups: dict[int, Strict] = field(default_factory=dict)
    admitted: list[Fraction] = field(default_factory=list)
    group_admitted: dict[int, list[Fraction]] = field(default_factory=lambda: defaultdict(list))

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
        """The highest rate of one group, msg/s."""
        return min(MAX_GROUP_QPS, self.topic.qps) if self.borrows else self.topic.qps / self.topic.groups

    @property
    def share(self) -> int:
        return -(-self.topic.burst // self.topic.groups)

    @property
    def group_allowance(self) -> int:
        """The messages beyond its rate that a group may get in any window."""
        if not self.borrows:
            return forgiven(self.share)
        # The cap limits loans but not the guarantee: each may add its allowance once.
        return forgiven(self.topic.burst) if self.topic.qps <= MAX_GROUP_QPS else 2 * forgiven(self.share)

    def change(self, topic: Topic, now: int) -> None:
        before, self.topic = self.topic, topic
        if (before.qps, before.groups, before.burst, before.borrow) == (
            topic.qps, topic.groups, topic.burst, topic.borrow,
        ):  # fmt: skip
            return  # debts remain
        self.bucket.retune(interval_of(topic.qps), topic.burst, now)
        self.most_burst = max(self.most_burst, topic.burst)
        # The rest of a burst may be worth a whole burst at the new pace.
        self.due.change(topic.qps, now, extra=self.most_burst)
        self.group_due.change(self.group_rate, now, extra=2 * self.most_burst)
        self.most_of_group = max(self.most_of_group, self.group_allowance)
        self.changed = now
        for group in self.groups:  # guarantee and cap are different buckets; either may have the debt
            interval = interval_of(self.group_rate)
            self.groups[group] = Strict(interval, self.share, now + interval)

    def admit(self, group: int, now: int) -> None:
        self.admitted.append(self.due(now))
        self.group_admitted[group].append(self.group_due(now))
        self.bucket.times.append(now)
        self._group(group).times.append(now)

    def conforms_from(self, ready: set[int]) -> int:
        """The latest instant at which one of the ready groups must get a message."""
        return max(self.bucket.earliest(), min(self._group(group).earliest() for group in ready))

    def check_windows(self) -> None:
        """Check promise Q for the topic, and E3 for its groups."""
        most = forgiven(self.most_burst)
        assert excess(self.admitted) <= most + ROUNDING, f"over {most} beyond the quota: {_shown(self.admitted)}"
        most = self.most_of_group
        for group, admitted in self.group_admitted.items():
            assert excess(admitted) <= most + ROUNDING, f"group {group}: over {most} beyond it: {_shown(admitted)}"

    def _group(self, group: int) -> Strict:
        if group not in self.groups:
            self.groups[group] = Strict(interval_of(self.group_rate), self.share, self.changed)
        return self.groups[group]


def _shown(due: list[Fraction]) -> list[float]:
    return [round(float(each), 3) for each in due]


@dataclass
class Project:
    """The calls that the test has made for one project, and the messages that it was granted."""

    name: str
    model: TopicModel | None = None  # kept over a deletion: deleting a topic gains nothing
    known: bool = False
    ready: set[tuple[int, int]] = field(default_factory=set)
    in_flight: list[tuple[Queue, int]] = field(default_factory=list)  # slots, with the number of messages of each
    last_active: int | None = None  # the last instant at which it wanted a slot or held one, ns

    @property
    def open(self) -> bool:
        return self.known and self.model.topic.state != "paused"

    @property
    def active(self) -> bool:
        return bool(self.in_flight or (self.open and self.ready))

    @property
    def running(self) -> int:
        return sum(count for _, count in self.in_flight)

    @property
    def full(self) -> bool:
        most = self.model.topic.concurrency
        return most is not None and self.running >= most

    def heads(self) -> set[tuple[int, int]]:
        """The highest ready band of each group."""
        return {(group, min(band for each, band in self.ready if each == group)) for group, _ in self.ready}

    def conforms_from(self) -> int:
        return self.model.conforms_from({group for group, _ in self.ready})
