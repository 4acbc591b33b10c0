"""Keeps a node's state of one queue: the sequences that wait, and the payloads of the next few messages.

A queue has up to three parts, in this order: `hand` (ready: the payload is in memory), `waiting` (the sequence only, 8
bytes per message, read again when its turn is near) and the spill (a start and a count, refilled by subject). `due`
holds sequences of the delay stream that have become due; they become ready before those in `waiting`. In an ordered
topic, messages whose key is out wait in `order`. A tenant with any backlog therefore costs a bounded amount of memory,
and never holds up another tenant's feed.
"""

from __future__ import annotations

from array import array
from itertools import islice
from typing import TYPE_CHECKING

from evenlane.engine.core.queue.entry import Entry, MemoryBudget, MessageRef
from evenlane.engine.core.queue.key_order import KeyOrder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from evenlane.engine.core.lane.lane import Lane
    from evenlane.quota.topics.topic import Topic

_LOW = 64  # more messages are read once fewer than this are ready (or fewer than half of `ahead`)
_COMPACT = 4096  # taken entries are removed from the front of a FIFO in pieces of this many


class SequenceFifo:
    """A FIFO of sequences at 8 bytes each.

    Invariant: the entries before `_cursor` are taken and wait to be removed; a removal per entry would be O(length).
    """

    __slots__ = ("_cursor", "_items")

    def __init__(self) -> None:
        self._items = array("Q")
        self._cursor = 0

    def __len__(self) -> int:
        return len(self._items) - self._cursor

    def __iter__(self) -> Iterator[int]:
        return islice(self._items, self._cursor, None)

    @property
    def head(self) -> int:
        """The next sequence; raises IndexError if there is none."""
        return self._items[self._cursor]

    def append(self, sequence: int) -> None:
        self._items.append(sequence)

    def extend(self, sequences: list[int]) -> None:
        self._items.extend(sequences)

    def take(self, count: int) -> list[int]:
        taken = self._items[self._cursor : self._cursor + count].tolist()
        self._cursor += len(taken)
        if self._cursor == len(self._items):
            self._items, self._cursor = array("Q"), 0
        elif self._cursor >= _COMPACT:
            del self._items[: self._cursor]
            self._cursor = 0
        return taken

    def put_back(self, sequences: list[int]) -> None:
        self._items[: self._cursor] = array("Q", sequences)
        self._cursor = 0

    def clear(self) -> None:
        self._items, self._cursor = array("Q"), 0


class Queue:
    """The queue of one (project, group, priority) in one partition. `band` is the priority's rank, 0 the highest.

    Invariants:
    - `hand_bytes` is the size of all payloads in `hand`, and is part of `MemoryBudget.held`.
    - `behind` is set while messages wait that aren't ready: in `waiting`, `due`, the spill or `order.next`. New
      messages then queue behind them, so that the order of the stream is kept.
    - Messages of the main stream are taken in the order `hand`, `waiting`, spill. While `spilled` isn't 0, every
      arrival from the sequence `spill_from` on is spilled.
    - `reading` holds the sequences of the read under way. They are in no other part until `was_read` or `read_failed`.
      Replacing the list cancels the read: identity decides. `reading_due` and `reading_turns` describe this read.
    """

    __slots__ = (
        "ack_wait",
        "ahead",
        "arrived",
        "asleep",
        "attempts",
        "band",
        "behind",
        "careful",
        "dead",
        "dropped",
        "due",
        "dwelt",
        "expired",
        "group",
        "hand",
        "hand_bytes",
        "handled",
        "loading",
        "longest",
        "low",
        "mean_size",
        "missing",
        "order",
        "partition",
        "priority",
        "project",
        "published",
        "pushed",
        "ran",
        "reading",
        "reading_due",
        "reading_turns",
        "refills",
        "retried",
        "single_attempt",
        "slot",
        "spill_from",
        "spilled",
        "topic",
        "ttl",
        "waited",
        "waiting",
        "waits",
    )

    def __init__(self, project: str, group: int, priority: str, band: int, partition: int) -> None:
        self.project, self.group, self.priority, self.band = project, group, priority, band
        self.partition = partition
        # a list, since an empty deque costs 600 bytes per queue; it is short
        self.hand: list[Entry] = []
        self.hand_bytes = 0
        self.waiting = SequenceFifo()
        self.due: SequenceFifo | None = None  # created on first use: most queues never have a delayed message
        self.spilled = 0
        self.spill_from = 0
        self.loading = False
        self.reading: list[int] = []  # the sequences of the read under way
        self.reading_due = False  # they are in the delay stream
        self.refills = 0  # grows when a scan under way that refills the queue becomes stale
        self.reading_turns: list[MessageRef] = []  # the same messages, if they come from `order.next`
        self.pushed = False  # its topic is delivered by HTTP
        self.order: KeyOrder | None = None  # in an ordered topic
        self.single_attempt = False  # its topic allows one attempt per message
        self.careful = False  # ordered or single-attempt: a message that was chosen may still have to wait
        self.slot: object | None = None
        self.topic: Topic | None = None
        self.asleep = True  # paused or without a topic: nothing is read ahead
        self.behind = False  # messages wait that aren't ready
        self.ahead, self.low = 256, _LOW  # ready messages: the most to hold, and the number below which more are read
        self.mean_size = 0  # bytes per message whose payload was unloaded, moving average
        self.ttl = self.ack_wait = 0  # ns; 0 until the topic is known
        # Totals since the start: messages (a delayed one arrives twice, at its put and when it is due), outcomes, and
        # times in ns.
        self.arrived = self.handled = self.retried = self.dead = self.expired = self.dropped = self.missing = 0
        self.attempts = self.dwelt = self.ran = 0
        self.published: tuple[int, ...] = ()  # the values of these that were last published as metrics
        # For reports (engine/telemetry/metering), None until there is a value: the number of messages by their wait
        # until their handler began, in buckets of engine/core/stats/wait_histogram.py; the longest of these waits
        # since the last record, ns; and, by reason, the time that messages waited, summed over the messages, ns.
        self.waits: dict[int, int] | None = None
        self.longest = 0
        self.waited: dict[str, float] | None = None

    @property
    def backlog(self) -> int:
        """The number of messages waiting."""
        behind = self.order.waiting if self.order else 0
        return len(self.hand) + len(self.reading) + self.unread + self.spilled + behind

    @property
    def failed(self) -> int:
        """Attempts that failed, plus messages that expired, since the start."""
        return self.retried + self.dead + self.expired

    @property
    def unread(self) -> int:
        """The number of messages whose sequence is known and whose payload isn't in memory."""
        turns = len(self.order.next) if self.order else 0
        return len(self.waiting) + (len(self.due) if self.due else 0) + turns

    def arrive(self, entry: Entry, limits: MemoryBudget) -> bool:
        """Take in a message from the feed. True if it may need attention: it is the first ready message, or nothing is
        ready and messages must be read.
        """
        self.arrived += 1
        if self.spilled and entry[1] >= self.spill_from:
            self.spilled += 1
            return False
        hand = self.hand
        size = entry[5]
        if (
            not self.behind
            and not self.asleep
            and len(hand) < self.ahead
            and limits.held + size <= limits.payload_bytes
            and (not hand or self.hand_bytes + size <= limits.queue_bytes)
        ):
            limits.held += size
            self.hand_bytes += size
            hand.append(entry)
            return len(hand) == 1
        self.sized(size)
        if len(self.waiting) < limits.index:
            self.waiting.append(entry[1])
            self.behind = True
        else:
            self.spill(entry[1])
        return not hand and not self.loading

    def arrive_unread(self, sequence: int, size: int, limits: MemoryBudget) -> bool:
        """Take in a message of `size` bytes whose body the feed left in the stream. Returns as `arrive` does."""
        self.arrived += 1
        if self.spilled and sequence >= self.spill_from:
            self.spilled += 1
            return False
        self.sized(size)
        if len(self.waiting) < limits.index:
            self.waiting.append(sequence)
            self.behind = True
        else:
            self.spill(sequence)
        return not self.hand and not self.loading

    def read_ahead(self, count: int) -> None:
        """Prefetch up to `count` messages."""
        self.ahead = count
        self.low = min(_LOW, max(1, count // 2))

    def sized(self, size: int) -> None:
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
        limits.held += entry[5]
        self.hand_bytes += entry[5]
        self.hand.append(entry)

    def take(self, limits: MemoryBudget) -> Entry:
        """Remove and return the head; raises IndexError if no message is ready."""
        entry = self.hand.pop(0)
        limits.held -= entry[5]
        self.hand_bytes -= entry[5]
        return entry

    def next_to_read(self, count: int) -> tuple[bool, list[int]]:
        """Take the next sequences to read, up to `count`, and whether they are in the delay stream. They are kept in
        `reading` until `was_read` or `read_failed`.
        """
        if self.order is not None and self.order.next:
            turns = self.reading_turns = self.order.take_next(count)
            self.reading_due = turns[0].lane.id.kind == "later"
            self.reading = [place.sequence for place in turns]
        else:
            self.reading_turns = []
            self.reading_due = bool(self.due)
            self.reading = self.due.take(count) if self.due else self.waiting.take(count)
        return self.reading_due, self.reading

    def was_read(self, sequences: list[int]) -> bool:
        """End a read, and return whether its messages are still wanted; if not, they were requeued meanwhile."""
        wanted = self.reading is sequences
        if wanted:
            self.reading = []
        return wanted

    def read_failed(self, sequences: list[int]) -> None:
        """Requeue the sequences that `next_to_read` returned."""
        if self.reading_turns and self.order is not None:
            self.order.next[:0] = self.reading_turns
            self.behind = True
        else:
            self.put_back(self.reading_due, sequences)

    def put_back(self, due: bool, sequences: list[int]) -> None:
        """Requeue sequences at the front of `due` or `waiting`."""
        if due and self.due is None:
            self.due = SequenceFifo()
        line = self.due if due else self.waiting
        assert line is not None
        line.put_back(sequences)
        self.behind = True

    @property
    def is_behind_key(self) -> bool:
        """Whether every message of an ordered topic's queue waits for a key to become free."""
        order = self.order
        if order is None or self.hand:
            return False
        return order.full or (order.waiting > 0 and not self.unread and not self.spilled)

    def requeue(self, each: Entry | MessageRef, limits: MemoryBudget) -> None:
        """Requeue a message that was taken, at the head."""
        if isinstance(each, MessageRef):
            if self.order is not None and self.order.out(each):
                self.order.next.append(each)
                self.behind = True
            else:
                self.put_back(each.lane.id.kind == "later", [each.sequence])
            return
        limits.held += each[5]
        self.hand_bytes += each[5]
        self.hand.insert(0, each)

    def add_due(self, sequence: int) -> None:
        """Queue a message of the delay stream that has become due."""
        if self.due is None:
            self.due = SequenceFifo()
        self.due.append(sequence)
        self.arrived += 1
        self.behind = True

    def unload(self, limits: MemoryBudget) -> None:
        """Unload the payloads and keep the sequences: the queue won't be served for a while.

        A read under way is cancelled: its messages would otherwise become ready ahead of the unloaded ones.
        """
        entries, reading = self.hand, self.reading
        self.hand, self.reading = [], []
        limits.held -= self.hand_bytes
        self.hand_bytes = 0
        if reading:
            self.read_failed(reading)
        if self.order is not None:
            self.order.drop_payloads(limits)
            turns = [place for entry in entries if self.order.out(place := MessageRef(*entry[:2]))]
            self.order.next[:0] = turns
            entries = [entry for entry in entries if not self.order.out(MessageRef(*entry[:2]))]
        for kind in ("lanes", "later"):
            if sequences := [sequence for lane, sequence, *_ in entries if lane.id.kind == kind]:
                self.put_back(kind == "later", sequences)
        self.behind = bool(self.unread or self.spilled)

    def keep_order(self, on: bool, limits: MemoryBudget) -> None:
        """Set whether the topic is ordered. When it no longer is, messages behind their keys return to the queue."""
        if on and self.order is None:
            self.order = KeyOrder()
        elif not on and self.order is not None:
            order, self.order = self.order, None
            self._requeue_all(order.drain(limits))
        self.careful = self.single_attempt or self.order is not None

    def _requeue_all(self, places: list[MessageRef]) -> None:
        for kind in ("lanes", "later"):
            if sequences := [place.sequence for place in places if place.lane.id.kind == kind]:
                self.put_back(kind == "later", sequences)

    def drain(self, main: Lane, later: Lane, limits: MemoryBudget) -> list[MessageRef]:
        """Remove and return all messages whose sequence is known. The spill stays."""
        self.unload(limits)
        places = [MessageRef(main, sequence) for sequence in self.waiting.take(len(self.waiting))]
        if self.due:
            places += [MessageRef(later, sequence) for sequence in self.due.take(len(self.due))]
        if self.order is not None:
            places += self.order.drain(limits)
            for place in places:  # free the keys of these, too: nothing waits behind them any more
                self.order.ended(place, limits)
        self.behind = bool(self.spilled)
        return places

    def discard(self, lane: Lane, limits: MemoryBudget) -> None:
        """Drop all messages of a lane whose stream was replaced."""
        following = self.order.discard(lane, limits) if self.order is not None else []
        kept = [entry for entry in self.hand if entry[0] is not lane]
        self._clear_hand(limits)
        for entry in kept:
            self.hold(entry, limits)
        if self.reading_due == (lane.id.kind == "later"):
            self.reading = []
        if lane.id.kind == "later":
            self.due = None
        else:
            self.waiting.clear()
            self.spilled = self.spill_from = 0
        for each in reversed(following):
            self.requeue(each, limits)
        self.behind = bool(self.unread or self.spilled)

    def _clear_hand(self, limits: MemoryBudget) -> None:
        limits.held -= self.hand_bytes
        self.hand_bytes = 0
        self.hand.clear()
