"""Simulates one tenant and the meter records of its nodes: an oracle for totals, in plain Python.

One partition with a few queues moves from node to node. In each interval messages come and end, then the node writes a
record, which may be lost or arrive twice. A node may hand off the partition while a handler still runs, or be killed
before its record.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.spark.reports.rows import INTERVAL_S, after, empty, meter

if TYPE_CHECKING:
    import random

REFRESH = 30
ENDINGS = ("handled", "handled", "handled", "retried", "dead")


@dataclass
class Queue:
    """The true state of a queue."""

    priority: str
    backlog: int = 0
    later: int = 0


@dataclass
class Owned:
    """A queue in one epoch, as its node counts it."""

    queue: Queue
    counters: Counter[str] = field(default_factory=Counter)
    buckets: Counter[int] = field(default_factory=Counter)
    in_flight: int = 0
    left: int | None = None  # the backlog at the handoff
    published: Any = None

    def state(self) -> Any:
        backlog = self.queue.backlog if self.left is None else self.left
        return dict(self.counters), dict(self.buckets), backlog, self.in_flight


@dataclass
class Node:
    name: str
    epoch: int
    since: float
    owned: list[Owned]
    number: int = 0
    acked: int = 0
    closed: bool = False
    known: bool = False  # whether a record has named it as the owner


class TenantHistory:
    """The history of one tenant. `real` counts events, `gone` those that a killed node hadn't reported."""

    def __init__(self, random: random.Random, case: int, *, lossy: bool, deadly: bool) -> None:
        self.random, self.case, self.lossy, self.deadly = random, case, lossy, deadly
        self.project = f"case-{case}"
        self.queues = [Queue(priority) for priority in ("high", "low")]
        self.real, self.gone, self.by_window = Counter[str](), Counter[str](), Counter[tuple[int, str]]()
        self.rows: list[tuple[Any, ...]] = []
        self.sequence, self.now, self.kills = case * 100_000, 0.0, 0
        self.leaving: list[Node] = []
        self.node = self._takes_over()

    def run(self, intervals: int) -> TenantHistory:
        for _ in range(intervals):
            self.now += INTERVAL_S
            self._happen()
            chance = self.random.random()
            if chance < 0.04:
                self._hand_off()
            elif self.deadly and chance < 0.08:
                self._kill()
            self._publish_all()
        for _ in range(REFRESH + 1):
            self.now += INTERVAL_S
            self._publish_all(sure=True)  # lost counts are reported again at the end
        self.random.shuffle(self.rows)
        return self

    @property
    def waiting(self) -> int:
        running = sum(owned.in_flight for node in (self.node, *self.leaving) for owned in node.owned)
        return running + sum(queue.backlog for queue in self.queues)

    def _takes_over(self) -> Node:
        epoch = 1 + round(self.now)
        node = Node(f"n{self.case}-{epoch}", epoch, self.now, [Owned(queue) for queue in self.queues])
        for owned in node.owned:
            owned.counters["arrived"] = owned.queue.backlog
        return node

    def _count(self, owned: Owned, what: str, many: int = 1) -> None:
        owned.counters[what] += many
        self.real[what] += many
        self.by_window[self._window(), what] += many

    def _window(self) -> int:
        """Events happen within the interval before a record."""
        return int((self.now - INTERVAL_S / 2) // 300)

    def _happen(self) -> None:
        for owned in self.node.owned:
            queue = owned.queue
            put, due = self.random.choice((0, 0, 1, 5)), self.random.randint(0, queue.later)
            queue.backlog += put + due
            queue.later -= due
            owned.counters["arrived"] += put + due
            self.real["put"] += put
            self.by_window[self._window(), "came"] += put + due
            for what in ("expired", "dropped"):
                if queue.backlog and self.random.random() < 0.1:
                    queue.backlog -= 1
                    self._count(owned, what)
            started = self.random.randint(0, min(queue.backlog, 3))
            queue.backlog -= started
            owned.in_flight += started
            self._count(owned, "attempts", started)
            owned.buckets[self.random.randint(10, 14)] += started
            self._end(owned)
        for node in self.leaving:
            for owned in node.owned:
                self._end(owned)

    def _end(self, owned: Owned) -> None:
        for _ in range(self.random.randint(0, owned.in_flight)):
            owned.in_flight -= 1
            what = self.random.choice(ENDINGS)
            owned.queue.later += what == "retried"
            self._count(owned, what)

    def _hand_off(self) -> None:
        for owned in self.node.owned:
            owned.left = owned.queue.backlog
        self.node.closed = True
        self.leaving.append(self.node)
        self.node = self._takes_over()

    def _kill(self) -> None:
        """Kill the node: its messages in flight wait for the next owner, and its unreported counts are lost."""
        self.kills += 1
        for owned in self.node.owned:
            owned.queue.backlog += owned.in_flight
            published = owned.published[0] if owned.published else {}
            self.gone.update({what: count - published.get(what, 0) for what, count in owned.counters.items()})
        self.node = self._takes_over()

    def _publish_all(self, *, sure: bool = False) -> None:
        for node in (*self.leaving, self.node):
            self._publish(node, lost=not sure and self.lossy and self.random.random() < 0.15)

    def _publish(self, node: Node, *, lost: bool) -> None:
        node.number += 1
        changed = [
            owned
            for owned in node.owned
            if any(owned.counters.values()) or owned.queue.backlog
            if owned.state() != owned.published or node.number % REFRESH == 0
        ]
        if not lost:
            for _ in range(2 if self.lossy and self.random.random() < 0.1 else 1):
                self.sequence += 1
                self.rows += [self._row(node, owned) for owned in changed] or [self._nothing(node)]
            node.acked = node.number
            node.known = True
            for owned in changed:
                owned.published = owned.state()

    def _nothing(self, node: Node) -> tuple[Any, ...]:
        is_due = not (node.known or node.closed) or node.number % REFRESH == 0
        owner = {"partition": self.case, "epoch": node.epoch, "since": after(node.since), "closed": False}
        return empty(
            self.now, sequence=self.sequence, node=node.name, run=node.epoch, number=node.number, after=node.acked,
            **(owner if is_due else {}),
        )  # fmt: skip

    def _row(self, node: Node, owned: Owned) -> tuple[Any, ...]:
        counters, buckets, backlog, in_flight = owned.state()
        known = owned.published[1] if owned.published and owned.published != owned.state() else {}
        return meter(
            self.now, sequence=self.sequence, node=node.name, run=node.epoch, number=node.number, after=node.acked,
            partition=self.case, epoch=node.epoch, since=after(node.since), closed=node.closed, project=self.project,
            priority=owned.queue.priority, backlog=backlog, in_flight=in_flight, **counters,
            waits=[(bucket, count) for bucket, count in buckets.items() if known.get(bucket) != count],
        )  # fmt: skip
