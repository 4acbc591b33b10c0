"""A fleet of nodes, message by message: each waits for a slot of its partition's node once its quota lets it go."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from itertools import count
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.control.scaling.policy import Observation
from evenlane.engine.telemetry.tenants.load import Demand, wanted_slots
from evenlane.ring.membership.records import LoadRecord, NodeRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.autoscaling.day import Day

    Scaler = Callable[["Look"], int]
    Message = tuple[float, int, int]

EVERY_S, SAMPLE_S, READY_S = 30.0, 5.0, 45.0
SLOTS, RECOVERY_S, SPREAD, PARTITIONS = 16, 60.0, 3, 128
TARGET_S, TARGET = 2.0, 0.99
MINUTE = 60.0
_SAMPLES = int(EVERY_S / SAMPLE_S)


class Look(NamedTuple):
    """What a scaler sees. `backlog` counts all messages that haven't started, whatever they wait for."""

    at: float
    seen: Observation
    backlog: int


class Result(NamedTuple):
    """`in_target`: the share of the minutes with messages in which at most 1 % of them waited for a slot for longer
    than 2 s. `nodes` has a number for each minute; `changes` are (time, before, after).
    """

    in_target: float
    node_hours: float
    nodes: list[int]
    changes: list[tuple[float, int, int]]
    messages: int


class Node:
    """A node with its slots. `waiting` has (since, project, partition)."""

    def __init__(self) -> None:
        self.running = 0
        self.waiting: deque[Message] = deque()


class Fleet:
    """Plays a day under a scaler. A node takes messages 45 s after it was asked for; one that is removed starts no
    more, and its handlers end. Partitions are spread evenly over the nodes, and messages at random over the partitions.
    """

    def __init__(self, day: Day, scaler: Scaler, nodes: int = 2, seed: int = 1) -> None:
        self._day, self._scaler, self._rng = day, scaler, Random(seed)
        self._asked = nodes
        self._ready = [Node() for _ in range(nodes)]
        self._coming: list[float] = []  # when nodes that were asked for are ready
        self._running: list[tuple[float, int, int, Node]] = []  # (end, number, project, node)
        self._numbers = count()
        self._zeros = [0] * len(day.projects)
        self._queued, self._busy, self._allowed = self._zeros[:], self._zeros[:], self._zeros[:]
        self._started, self._ran, self._competed = self._zeros[:], [0.0] * len(self._zeros), self._zeros[:]
        self._minutes = int(day.seconds // MINUTE) + 1
        self._late, self._all = [0] * self._minutes, [0] * self._minutes
        self._nodes: list[int] = []
        self._changes: list[tuple[float, int, int]] = []
        self._node_s, self._looked_at = 0.0, 0.0

    def play(self) -> Result:
        messages = self._day.messages()
        following = next(messages, None)
        sample_at = SAMPLE_S
        while sample_at <= self._day.seconds:
            now = min(following[0] if following else sample_at, self._running[0][0] if self._running else sample_at)
            if now >= sample_at:
                self._sample(sample_at)
                sample_at += SAMPLE_S
                continue
            while self._running and self._running[0][0] <= now:
                _, _, project, node = heapq.heappop(self._running)
                self._busy[project] -= 1
                node.running -= 1
                self._start(node, now)
            while following is not None and following[0] <= now:
                self._take(*following)
                following = next(messages, None)
        self._give_up()
        minutes = [late <= (1 - TARGET) * count for late, count in zip(self._late, self._all, strict=True) if count]
        return Result(
            sum(minutes) / len(minutes), self._node_s / 3_600, self._nodes, self._changes, sum(self._allowed)
        )  # fmt: skip

    def _take(self, now: float, project: int) -> None:
        self._queued[project] += 1
        self._allowed[project] += 1
        partition = self._rng.randrange(PARTITIONS)
        node = self._node_of(partition)
        node.waiting.append((now, project, partition))
        self._start(node, now)

    def _node_of(self, partition: int) -> Node:
        return self._ready[partition * len(self._ready) // PARTITIONS]

    def _start(self, node: Node, now: float) -> None:
        while node.waiting and node.running < SLOTS:
            since, project, _ = node.waiting.popleft()
            self._note_wait(since, now - since)
            self._queued[project] -= 1
            self._busy[project] += 1
            self._started[project] += 1
            node.running += 1
            took = self._rng.expovariate(1 / self._day.projects[project].handling_s)
            heapq.heappush(self._running, (now + took, next(self._numbers), project, node))

    def _move(self, nodes: list[Node], now: float) -> None:
        """Give the partitions to these nodes, with the messages that wait there."""
        messages = sorted(message for node in self._ready for message in node.waiting)
        for node in self._ready:
            node.waiting.clear()
        self._ready = nodes
        for message in messages:
            self._node_of(message[2]).waiting.append(message)
        for node in nodes:
            self._start(node, now)

    def _note_wait(self, since: float, wait: float) -> None:
        minute = int(since // MINUTE)
        self._all[minute] += 1
        self._late[minute] += wait > TARGET_S

    def _give_up(self) -> None:
        """Messages that haven't started by the end have waited until then."""
        for node in self._ready:
            for since, *_ in node.waiting:
                self._note_wait(since, self._day.seconds - since)

    def _sample(self, now: float) -> None:
        self._node_s += self._asked * SAMPLE_S
        come = [at for at in self._coming if at <= now]
        if come:
            self._coming = [at for at in self._coming if at > now]
            self._move(self._ready + [Node() for _ in come], now)
        for project, busy in enumerate(self._busy):
            self._ran[project] += busy * SAMPLE_S
            self._competed[project] += self._queued[project] > 0
        if now % MINUTE < SAMPLE_S:
            self._nodes.append(self._asked)
        if now - self._looked_at >= EVERY_S:
            self._scale(now)
            self._looked_at = now
            self._started, self._ran, self._competed = self._zeros[:], [0.0] * len(self._zeros), self._zeros[:]

    def _scale(self, now: float) -> None:
        asked = self._scaler(self._look(now))
        if asked != self._asked:
            self._changes.append((now, self._asked, asked))
        self._coming += [now + READY_S] * (asked - self._asked)
        fewer = max(0, self._asked - asked)
        called_off = min(fewer, len(self._coming))
        self._coming = self._coming[: len(self._coming) - called_off]
        if fewer > called_off:
            self._move(self._ready[: len(self._ready) - (fewer - called_off)], now)
        self._asked = asked

    def _look(self, now: float) -> Look:
        """The records of the nodes as each would make them, of an even share of everything."""
        day, blocked, wanted = self._day, 0, 0.0
        mean_s = sum(self._ran) / max(sum(self._started), 0.5)
        for number, project in enumerate(day.projects):
            arrived = bisect_right(day.arrived[number], now)
            blocked += arrived - self._allowed[number]
            arriving = (arrived - bisect_right(day.arrived[number], now - EVERY_S)) / EVERY_S
            ran = self._ran[number]
            competes = self._competed[number] > _SAMPLES / 2
            demand = Demand(
                ran / EVERY_S, ran / max(self._started[number], 0.5) if ran else mean_s, arriving,
                self._queued[number] if competes else 0, project.qps,
            )  # fmt: skip
            wanted += wanted_slots(demand, RECOVERY_S)
        used, nodes = sum(self._ran) / EVERY_S, len(self._ready)
        load = LoadRecord(used=used / nodes, wanted=wanted / nodes, handling=mean_s, blocked={"quota": blocked})
        projects = round(sum(map(bool, self._ran)) * min(SPREAD, nodes) / nodes)
        node = NodeRecord(host="h", cpu=used / nodes / SLOTS, slots=SLOTS, load=load, projects=projects)
        seen = Observation({f"n{number}": node for number in range(nodes)}, self._asked, PARTITIONS)
        return Look(now, seen, blocked + sum(self._queued))
