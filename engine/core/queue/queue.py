"""Keeps a node's state of one queue: the sequences of its waiting messages, and the payloads of the next few.

A queue has up to three parts, in this order: `ready` (ready: the payload is in memory), `waiting` (the sequence only, 8
bytes per message, read again when its turn is near) and the spill (a start and a count, refilled by subject). `due`
holds sequences of the delay stream that have become due, `again` those of a named subscription's own stream of retries;
they become ready before those in `waiting`. In an ordered
topic, messages whose key is out wait in `order`. A tenant with any backlog therefore costs a bounded amount of memory,
and never holds up another tenant's feed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evenlane.engine.base.names import LANE_KINDS
from evenlane.engine.core.queue.entry import Entry, MemoryBudget, MessageRef
from evenlane.engine.core.queue.key_order import KeyOrder
from evenlane.engine.core.queue.queue_rules import NO_TOPIC
from evenlane.engine.core.queue.queue_stats import QueueStats
from evenlane.engine.core.queue.sequence_fifo import SequenceFifo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from evenlane.engine.base.names import Kind
    from evenlane.engine.core.queue.queue_rules import QueueRules


@dataclass(slots=True, eq=False)
class PendingRead:
    """Sequences whose payloads are being read, in the partition's stream of this `kind`. `turns` has the same messages
    if they come from `order.next`.
    """

    kind: Kind
    sequences: list[int]
    turns: list[MessageRef] = field(default_factory=list)


class Queue:
    """The queue of one (project, group, priority) in one partition. `band` is the priority's rank, 0 the highest.

    Invariants:
    - `ready_bytes` is the size of all payloads in `ready`, and is part of `MemoryBudget.used_bytes`.
    - `behind` is set while messages wait that aren't ready: in `waiting`, `due`, `again`, the spill or `order.next`.
      New messages then queue behind them, so that the order of the stream is kept.
    - Messages of the main stream are taken in the order `ready`, `waiting`, spill. While `spilled` isn't 0, every
      arrival from the sequence `spill_from` on is spilled.
    - The sequences of `read`, the read under way, are in no other part until `finish_read` or `fail_read`. Replacing
      `read` cancels it: identity decides.

    The waiting messages are stored in attributes of the queue itself, not in a separate object: each message passes
    through them twice, and a clearer structure wouldn't be worth another attribute load.
    """

    __slots__ = (
        "again",
        "band",
        "behind",
        "due",
        "group",
        "loading",
        "mean_size",
        "order",
        "partition",
        "priority",
        "project",
        "read",
        "ready",
        "ready_bytes",
        "refills",
        "rules",
        "slot",
        "spill_from",
        "spilled",
        "stats",
        "unhandled",
        "waiting",
    )

    def __init__(self, project: str, group: int, priority: str, band: int, partition: int) -> None:
        self.project, self.group, self.priority, self.band = project, group, priority, band
        self.partition = partition
        self.rules: QueueRules = NO_TOPIC
        self.stats = QueueStats()
        # a list, since an empty deque costs 600 bytes per queue; it is short
        self.ready: list[Entry] = []
        self.ready_bytes = 0
        self.waiting = SequenceFifo()
        # created on first use: most queues never have a delayed message
        self.due: SequenceFifo | None = None
        self.again: SequenceFifo | None = None
        self.order: KeyOrder | None = None  # in an ordered topic
        self.spilled = 0
        self.spill_from = 0
        self.behind = False  # messages wait that aren't ready
        self.loading = False
        self.read: PendingRead | None = None
        self.refills = 0  # grows when a scan under way that refills the queue becomes stale
        self.mean_size = 0  # bytes per message whose payload was unloaded, moving average
        self.slot: object | None = None  # of the scheduler
        self.unhandled = 0  # messages that were taken, and wait elsewhere because no handler takes their kind

    @property
    def backlog(self) -> int:
        """The number of messages waiting."""
        behind = self.order.waiting if self.order else 0
        reading = len(self.read.sequences) if self.read else 0
        return len(self.ready) + reading + self.unread + self.spilled + behind + self.unhandled

    @property
    def unread(self) -> int:
        """The number of messages whose sequence is known and whose payload isn't in memory."""
        turns = len(self.order.next) if self.order else 0
        due = (len(self.due) if self.due else 0) + (len(self.again) if self.again else 0)
        return len(self.waiting) + due + turns

    def arrive(self, entry: Entry, limits: MemoryBudget) -> bool:
        """Take in a message from the feed. True if it may need attention: it is the first ready message, or nothing is
        ready and messages must be read.
        """
        self.stats.arrived += 1
        if self.spilled and entry[1] >= self.spill_from:
            self.spilled += 1
            return False
        ready = self.ready
        size, rules = entry[5], self.rules
        if (
            not self.behind
            and not rules.asleep
            and len(ready) < rules.ahead
            and limits.used_bytes + size <= limits.payload_bytes
            and (not ready or self.ready_bytes + size <= limits.queue_bytes)
        ):
            limits.used_bytes += size
            self.ready_bytes += size
            ready.append(entry)
            return len(ready) == 1
        self.note_size(size)
        if len(self.waiting) < limits.index:
            self.waiting.append(entry[1])
            self.behind = True
        else:
            self.spill(entry[1])
        return not ready and not self.loading

    def arrive_unread(self, sequence: int, size: int, limits: MemoryBudget) -> bool:
        """Take in a message of `size` bytes whose body the feed left in the stream. Returns as `arrive` does."""
        self.stats.arrived += 1
        if self.spilled and sequence >= self.spill_from:
            self.spilled += 1
            return False
        self.note_size(size)
        if len(self.waiting) < limits.index:
            self.waiting.append(sequence)
            self.behind = True
        else:
            self.spill(sequence)
        return not self.ready and not self.loading

    def note_size(self, size: int) -> None:
        """Note the size (bytes) of a payload that was unloaded and will be read again."""
        self.mean_size += (size - self.mean_size) >> 3 if self.mean_size else size

    def spill(self, sequence: int, count: int = 1) -> None:
        """Add `count` messages from `sequence` on to the spill; a refill will find them by their subject."""
        self.behind = True
        self.spilled += count
        if self.spilled == count or sequence < self.spill_from:
            self.spill_from = sequence

    def take_spill(self) -> tuple[int, int]:
        """Remove the spill and return its first sequence and its count. A refill under way becomes stale."""
        self.refills += 1
        taken = self.spill_from, self.spilled
        self.spill_from = self.spilled = 0
        self.behind = bool(self.unread)
        return taken

    def hold(self, entry: Entry, limits: MemoryBudget) -> None:
        """Add a message that was read by sequence to the ready ones. No limit applies: its turn is near."""
        limits.used_bytes += entry[5]
        self.ready_bytes += entry[5]
        self.ready.append(entry)

    def take(self, limits: MemoryBudget) -> Entry:
        """Remove and return the head; raises IndexError if no message is ready."""
        entry = self.ready.pop(0)
        limits.used_bytes -= entry[5]
        self.ready_bytes -= entry[5]
        return entry

    def next_to_read(self, count: int) -> PendingRead:
        """Take the next sequences to read, up to `count`. They stay in `read` until `finish_read` or `fail_read`."""
        if self.order is not None and self.order.next:
            turns = self.order.take_next(count)
            self.read = PendingRead(turns[0].lane.id.kind, [place.sequence for place in turns], turns)
        elif self.again:
            self.read = PendingRead("again", self.again.take(count))
        elif self.due:
            self.read = PendingRead("later", self.due.take(count))
        else:
            self.read = PendingRead("lanes", self.waiting.take(count))
        return self.read

    def finish_read(self, read: PendingRead) -> bool:
        """End a read, and return whether it still holds; if not, its messages were requeued meanwhile."""
        holds = self.read is read
        if holds:
            self.read = None
        return holds

    def fail_read(self, read: PendingRead) -> None:
        """Requeue the sequences that `next_to_read` returned."""
        if read.turns and self.order is not None:
            self.order.next[:0] = read.turns
            self.behind = True
        else:
            self.requeue_sequences(read.kind, read.sequences)

    def find_line(self, kind: Kind) -> SequenceFifo | None:
        """The sequences that wait of the partition's stream of this kind; None if there never were any."""
        if kind == "lanes":
            return self.waiting
        return self.due if kind == "later" else self.again

    def _line(self, kind: Kind) -> SequenceFifo:
        line = self.find_line(kind)
        if line is None:
            line = SequenceFifo()
            if kind == "later":
                self.due = line
            else:
                self.again = line
        return line

    def requeue_sequences(self, kind: Kind, sequences: list[int]) -> None:
        """Requeue sequences of the stream of this kind, ahead of others of that stream."""
        self._line(kind).prepend(sequences)
        self.behind = True

    def requeue_all(self, messages: Sequence[Entry | MessageRef]) -> None:
        """Requeue messages of all streams, in this order, each ahead of others of its stream."""
        for kind in LANE_KINDS:
            if sequences := [each[1] for each in messages if each[0].id.kind == kind]:
                self.requeue_sequences(kind, sequences)

    @property
    def is_behind_key(self) -> bool:
        """Whether every message of an ordered topic's queue waits for a key to become free."""
        order = self.order
        if order is None or self.ready:
            return False
        return order.full or (order.waiting > 0 and not self.unread and not self.spilled)

    def requeue(self, each: Entry | MessageRef, limits: MemoryBudget) -> None:
        """Requeue a message that was taken, at the head."""
        if isinstance(each, MessageRef):
            if self.order is not None and self.order.is_out(each):
                self.order.next.append(each)
                self.behind = True
            else:
                self.requeue_sequences(each.lane.id.kind, [each.sequence])
            return
        limits.used_bytes += each[5]
        self.ready_bytes += each[5]
        self.ready.insert(0, each)

    def add_due(self, kind: Kind, sequence: int) -> None:
        """Queue a message that has become due, of the delay stream of this kind."""
        self._line(kind).append(sequence)
        self.stats.arrived += 1
        self.behind = True

    def apply(self, rules: QueueRules, limits: MemoryBudget) -> None:
        """Apply a topic's rules. When it is no longer ordered, messages behind their keys return to the queue."""
        self.rules = rules
        if rules.ordered and self.order is None:
            self.order = KeyOrder()
        elif not rules.ordered and self.order is not None:
            order, self.order = self.order, None
            self.requeue_all(order.drain(limits))
