"""M: the memory that waiting messages and idle queues cost a node, in bytes."""

import gc
import tracemalloc
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from evenlane.engine.base.names import LaneId, lane_subject, later_subject
from evenlane.engine.core.lane.log_state import LogState
from evenlane.engine.core.ports import LaneState
from evenlane.engine.core.queue.entry import MemoryBudget
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue, SequenceFifo
from evenlane.engine.core.queue.queue_rules import QueueRules
from evenlane.engine.core.wire import headers as h
from evenlane.engine.proof.baselines.schedulers import PlainScheduler
from tests.support.lane_host import Host

MESSAGES, QUEUES = 20_000, 1_000
BODY = b"x" * 100


@contextmanager
def measured():
    """`bytes` is the memory allocated inside the block and still held at its end."""
    cost = SimpleNamespace(bytes=0)
    gc.collect()
    tracemalloc.start()
    yield cost
    gc.collect()
    cost.bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()


class Node:
    """A lane, its queues and their scheduler."""

    def __init__(self, limits: MemoryBudget, kind: str = "lanes") -> None:
        self.limits, self.scheduler = limits, PlainScheduler()
        self.lane = FedLane(LaneId(kind, 3), 1, limits, Host(self._open, lambda queue: self.scheduler.ready(queue, 0)))
        self.lane.recover(LogState(), LaneState("s", 0, 0, 0), None)

    def _open(self, _lane, subject, _entry) -> Queue:
        _, _, partition, project, group, priority, *_ = subject.decode().split(".")
        queue = Queue(project, int(group), priority, 1, int(partition))
        queue.rules = QueueRules(asleep=False)
        return queue


def test_waiting_message_costs_at_most_40_bytes():
    """M: most of a hot tenant's messages are kept as sequences only; 256 kB for the first 256 with their payload."""
    subject = lane_subject("online", 3, "acme", 0, "mid").encode()
    node = Node(MemoryBudget(index=MESSAGES))
    with measured() as cost:
        for sequence in range(1, MESSAGES + 1):
            node.lane.take_in(subject, sequence, sequence, b"", BODY)
    queue = node.lane.queues[subject]
    assert MESSAGES == queue.backlog
    assert (cost.bytes - 256 * 1_000) / MESSAGES <= 40


def test_spilled_message_costs_nothing():
    subject = lane_subject("online", 3, "acme", 0, "mid").encode()
    node = Node(MemoryBudget(index=10))
    with measured() as cost:
        for sequence in range(1, MESSAGES + 1):
            node.lane.take_in(subject, sequence, sequence, b"", BODY)
    assert MESSAGES == node.lane.queues[subject].backlog
    assert cost.bytes < 256 * 1_000


def test_idle_queue_costs_at_most_3_kb():
    """M, E16: 60,000 queues fit a node."""
    node = Node(MemoryBudget())
    with measured() as cost:
        for number in range(1, QUEUES + 1):
            subject = lane_subject("online", 3, f"project-{number}", 0, "mid").encode()
            node.lane.take_in(subject, number, number, b"", BODY)
            queue = node.lane.queues[subject]
            node.scheduler.configure(queue.project, SimpleNamespace(state="active"), 0)
            queue.take(node.limits)
            node.scheduler.empty(queue, 0)
            node.lane.settle(number, 0, 0)
        node.lane.log.on_append(node.lane.next_append(0))
    assert (QUEUES, 0) == (len(node.lane.queues), node.limits.used_bytes)
    assert cost.bytes / QUEUES <= 3_000


@pytest.mark.parametrize("instants", [1, 977])
def test_delayed_message_costs_at_most_80_bytes(instants):
    """M: with equal and with different due times."""
    subject = later_subject("online", 3, "acme", 0, "mid", 498_000).encode()
    node, messages = Node(MemoryBudget(), "later"), MESSAGES // 2
    due = 498_000 * 3_600 * 10**9
    with measured() as cost:
        for sequence in range(1, messages + 1):
            block = h.encode({h.DUE: str(due + sequence % instants * 10**9)})
            node.lane.take_in_later(subject, sequence, 0, block, BODY)
    assert messages == len(node.lane.delayed)
    assert cost.bytes / messages <= 80


def test_taken_entries_of_a_fifo_are_freed():
    """M: a FIFO that is never empty keeps at most 4,096 taken entries, of 8 bytes each."""
    fifo = SequenceFifo()
    with measured() as cost:
        for sequence in range(MESSAGES):
            fifo.append(sequence)
            if len(fifo) > 10:
                fifo.take(1)
    assert cost.bytes < 2 * 8 * 4_096


def test_settled_messages_above_a_pinned_watermark_cost_bounded_memory():
    """M: chunks that are settled completely share one marker. Pinned is the normal case."""
    node = Node(MemoryBudget())
    with measured() as cost:
        for sequence in range(2, 40_000):
            node.lane.settled.add(sequence)
    assert 0 == node.lane.removal.durable_watermark
    assert cost.bytes < 50_000
    node.lane.settled.add(1)
    assert (39_999, []) == (node.lane.settled.watermark, list(node.lane.settled.above()))
