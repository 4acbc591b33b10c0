"""Two nodes of one topic on a bus in memory, with the parts that quota lending needs."""

import asyncio
from types import SimpleNamespace

from evenlane.engine.core.ports import Disconnected
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.scheduler.interface import NOTHING_USED, QuotaUse
from evenlane.engine.node.queues.activity import Activity
from evenlane.engine.node.queues.quota_shares import QuotaShares
from evenlane.engine.node.services.quota_borrower import QuotaBorrower
from evenlane.engine.node.services.quota_demand import QuotaDemand
from tests.support.node.world import CLUSTER_CONFIG, topic

ENV = "online"
GROUPS = 10
PROJECT = "still"
WHOLE = topic(qps=100, groups=GROUPS, spread=2)


class Bus:
    """Messages sent so far, in order. Nothing can be sent while `away`."""

    def __init__(self):
        self.received = []
        self.listeners = {}
        self.away = False

    def connection(self):
        return Connection(self)


class Connection:
    def __init__(self, bus):
        self.bus, self.mine = bus, []

    async def open(self):
        pass

    def listen(self, subject, on_message):
        self.bus.listeners.setdefault(subject, []).append(on_message)
        self.mine.append((subject, on_message))

    def send(self, subject, body):
        if self.bus.away:
            raise Disconnected("away")
        self.bus.received.append((subject, body))
        for on_message in self.bus.listeners.get(subject, ()):
            asyncio.get_running_loop().call_soon(on_message, subject.encode(), b"", b"", body)

    async def close(self):
        for subject, on_message in self.mine:
            self.bus.listeners[subject].remove(on_message)


def waiting(count, group):
    queue = Queue(PROJECT, group, "mid", 0, 0)
    queue.spill(1, count)
    return queue


class RecordingDemand(QuotaDemand):
    """Keeps when each project was last examined."""

    def __init__(self):
        super().__init__(1_000_000)
        self.examined = {}

    def want(self, project, seen, now, waiting):
        self.examined[project] = now
        return super().want(project, seen, now, waiting)


class Node:
    """The parts of a node that quota shares need. It owns one of the two partitions."""

    def __init__(self, bus, name, partition, *, every_s=0.02, configured=True):
        self.id, self.cluster_config, self.bus = name, CLUSTER_CONFIG, bus
        self.mine = {partition}
        self.topics = {PROJECT: WHOLE}
        self.scheduler = SimpleNamespace(configure=lambda *_: None, measure_use=self.used)
        self.trusted_until = 1 << 62
        self.messages = []
        self.empty = Queue(PROJECT, 0, "mid", 0, partition)
        self.activity = Activity()
        self.activity.note(self.empty)
        self.queues = SimpleNamespace(
            of_project=lambda _project: self.messages or [self.empty],
            all=lambda: self.messages or [self.empty],
            activity=self.activity,
            on_gone=[],
        )
        self.queues.shares = QuotaShares(
            CLUSTER_CONFIG, self.scheduler, self.topics.get, lambda _: (), self.mine, {PROJECT}, lambda: None
        )
        if configured:
            self.queues.shares.configure(PROJECT)
        self.on_change = []
        self.lent = []  # loans that the node reported, each with the number of messages sent before
        self.demand = RecordingDemand()
        self.borrower = QuotaBorrower(
            bus.connection(), ENV, self, self.on_change, self.note, every_s=every_s, demand=self.demand
        )

    def used(self, _project, now):
        """All of the node's part is used if a message waits."""
        return QuotaUse(now // 1_000, has=True, waits=True) if self.messages else NOTHING_USED

    def note(self, lent):
        self.lent.append((lent, len(self.bus.received)))

    @property
    def shares(self):
        return self.queues.shares

    def put(self, count):
        """Let `count` messages wait for quota in each of five groups."""
        self.messages = [waiting(count, group) for group in range(5)]
        for queue in self.messages:
            self.activity.note(queue)

    @property
    def part(self):
        return self.shares.loans.part(PROJECT, self.shares.compute_own_part(PROJECT))
