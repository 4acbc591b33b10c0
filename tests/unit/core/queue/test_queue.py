"""A queue: bounded, in order, with its bytes accounted for."""

from collections import deque
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.queue import clear
from evenlane.engine.core.queue.entry import MemoryBudget, MessageRef, entry_of
from evenlane.engine.core.queue.queue import Queue, SequenceFifo
from evenlane.engine.core.queue.queue_head import place_of_head
from evenlane.engine.core.queue.queue_rules import QueueRules, low_mark

LANE = Lane(LaneId("lanes", 1), 1)
LATER = Lane(LaneId("later", 1), 1)
AGAIN = Lane(LaneId("again", 1), 1)
counts = st.one_of(st.integers(0, 5), st.integers(0, 10_000))


class Fifos(RuleBasedStateMachine):
    """A FIFO against a deque, large enough that taken entries are removed from its front."""

    @initialize()
    def begin(self):
        self.fifo, self.oracle, self.number = SequenceFifo(), deque(), 0

    @rule(count=counts)
    def extend(self, count):
        more = list(range(self.number, self.number + count))
        self.number += count
        self.fifo.extend(more)
        self.oracle.extend(more)

    @rule()
    def append(self):
        self.number += 1
        self.fifo.append(self.number)
        self.oracle.append(self.number)

    @rule(count=counts, back=st.integers(0, 10_000))
    def take(self, count, back):
        taken = self.fifo.take(count)
        assert [self.oracle.popleft() for _ in range(min(count, len(self.oracle)))] == taken
        back = taken[-back:] if back else []
        self.fifo.prepend(back)
        self.oracle.extendleft(reversed(back))

    @rule()
    def clear(self):
        self.fifo.clear()
        self.oracle.clear()

    @invariant()
    def lengths_match(self):
        assert len(self.oracle) == len(self.fifo)

    def teardown(self):
        if hasattr(self, "fifo"):
            assert list(self.oracle) == self.fifo.take(len(self.fifo) + 1)


TestFifos = Fifos.TestCase


class Queues(RuleBasedStateMachine):
    """Two queues that share the node's limits. Each hands out its messages in the order of their puts."""

    @initialize(
        payload=st.integers(0, 200), read_ahead=st.integers(1, 5), index=st.integers(0, 8), queue=st.integers(1, 90)
    )
    def begin(self, payload, read_ahead, index, queue):
        self.limits = MemoryBudget(payload_bytes=payload, read_ahead=read_ahead, index=index, queue_bytes=queue)
        self.queues = [Queue("acme", group, "mid", 1, 1) for group in range(2)]
        for each in self.queues:
            each.rules = QueueRules(asleep=False, ahead=read_ahead, low=low_mark(read_ahead))
        self.put: list[list[int]] = [[], []]
        self.sizes: dict[int, int] = {}
        self.last = 0
        self.under_way: list[list[int] | None] = [None, None]

    @rule(which=st.integers(0, 1), size=st.integers(0, 60))
    def arrive(self, which, size):
        self.last += 1
        self.put[which].append(self.last)
        self.sizes[self.last] = size
        queue, held = self.queues[which], self.limits.used_bytes
        was_empty = not queue.ready
        notifies = queue.arrive(self._entry(self.last), self.limits)
        if self.limits.used_bytes > held or (queue.ready and queue.ready[-1][1] == self.last):
            assert self.limits.used_bytes <= self.limits.payload_bytes
            assert len(queue.ready) <= self.limits.read_ahead
            assert len(queue.ready) == 1 or queue.ready_bytes <= self.limits.queue_bytes
        assert not notifies or was_empty
        assert notifies or not was_empty or queue.spilled, "the first message was not announced"

    def _entry(self, sequence, lane=LANE):
        size = self.sizes[sequence]
        return entry_of(lane, sequence, 0, b"h" * (size // 3), b"b" * (size - size // 3))

    @rule(which=st.integers(0, 1))
    def take(self, which):
        queue = self.queues[which]
        if queue.ready:
            assert self.put[which].pop(0) == queue.take(self.limits)[1]

    @rule(which=st.integers(0, 1), count=st.integers(1, 10))
    def begin_a_read(self, which, count):
        if self.under_way[which] is not None:
            return
        queue = self.queues[which]
        if not queue.unread and queue.spilled:
            found = [s for s in self.put[which] if s >= queue.spill_from][:count]
            queue.waiting.extend(found)
            queue.spilled -= len(found)
            queue.spill_from = found[-1] + 1
        read = queue.next_to_read(count)
        assert "lanes" == read.kind
        self.under_way[which] = read

    @rule(which=st.integers(0, 1), fails=st.booleans())
    def end_a_read(self, which, fails):
        queue, read = self.queues[which], self.under_way[which]
        if read is None:
            return
        self.under_way[which] = None
        if not queue.finish_read(read):
            return  # unloaded or dropped meanwhile
        if fails:
            queue.fail_read(read)
            return
        for sequence in read.sequences:
            queue.hold(self._entry(sequence), self.limits)
        queue.behind = bool(queue.unread or queue.spilled)

    @rule(which=st.integers(0, 1))
    def unload(self, which):
        clear.unload(self.queues[which], self.limits)
        assert 0 == self.queues[which].ready_bytes

    @rule(which=st.integers(0, 1))
    def discard(self, which):
        clear.discard(self.queues[which], LANE, self.limits)
        self.put[which].clear()
        assert 0 == self.queues[which].backlog

    @rule(which=st.integers(0, 1), asleep=st.booleans())
    def pause_or_resume(self, which, asleep):
        queue = self.queues[which]
        queue.apply(replace(queue.rules, asleep=asleep), self.limits)

    @invariant()
    def backlog_and_bytes_add_up(self):
        for queue, put in zip(self.queues, self.put, strict=True):
            assert len(put) == queue.backlog
            assert sum(self.sizes[entry[1]] for entry in queue.ready) == queue.ready_bytes
            assert queue.behind or not (queue.unread or queue.spilled)
        assert sum(queue.ready_bytes for queue in self.queues) == self.limits.used_bytes

    def teardown(self):
        if hasattr(self, "queues"):
            for which in range(2):
                while self.put[which]:
                    self.take(which)
                    if self.put[which] and not self.queues[which].ready:
                        self.begin_a_read(which, 7)
                        self.end_a_read(which, fails=False)
            assert 0 == self.limits.used_bytes


TestQueues = Queues.TestCase


def test_due_messages_are_read_before_waiting_ones():
    queue, limits = Queue("acme", 0, "mid", 1, 1), MemoryBudget()
    queue.arrive(entry_of(LANE, 5, 0, b"", b""), limits)
    queue.add_due("later", 9)
    queue.add_due("later", 7)
    assert (3, True) == (queue.backlog, queue.behind)
    both = queue.next_to_read(10)
    assert ("later", [9, 7]) == (both.kind, both.sequences)
    queue.fail_read(both)
    reads = [queue.next_to_read(1) for _ in range(3)]
    assert [("later", [9]), ("later", [7]), ("lanes", [5])] == [(read.kind, read.sequences) for read in reads]


def test_unloaded_messages_return_to_their_streams():
    queue, limits = Queue("acme", 0, "mid", 1, 1), MemoryBudget()
    for lane, sequence in ((LANE, 1), (LATER, 1), (LANE, 2)):
        queue.hold(entry_of(lane, sequence, 0, b"", b"x"), limits)
    clear.unload(queue, limits)
    assert (0, 0, 3) == (limits.used_bytes, queue.ready_bytes, queue.backlog)
    reads = [queue.next_to_read(9), queue.next_to_read(9)]
    assert [("later", [1]), ("lanes", [1, 2])] == [(read.kind, read.sequences) for read in reads]


def test_forget_drops_only_messages_of_the_replaced_stream():
    queue, limits = Queue("acme", 0, "mid", 1, 1), MemoryBudget()
    queue.hold(entry_of(LANE, 1, 0, b"", b"x"), limits)
    queue.hold(entry_of(LATER, 1, 0, b"", b"xx"), limits)
    queue.waiting.append(2)
    queue.add_due("later", 3)
    clear.discard(queue, LATER, limits)
    assert ([LANE], 1, 1) == ([entry[0] for entry in queue.ready], limits.used_bytes, queue.unread)
    clear.discard(queue, LANE, limits)
    assert (0, 0, False) == (queue.backlog, limits.used_bytes, queue.behind)


def test_queue_bytes_default_depends_on_payload_bytes():
    assert (1 << 20, 64 << 10) == (MemoryBudget().queue_bytes, MemoryBudget(payload_bytes=1000).queue_bytes)


def test_streams_of_a_named_subscription_are_kept_apart():
    """K10: its own retries are read first, and have sequences that its delay stream has, too."""
    queue, limits = Queue("acme", 0, "mid", 1, 1), MemoryBudget()
    for lane in (LANE, LATER, AGAIN):
        queue.hold(entry_of(lane, 1, 0, b"", b"x"), limits)
    clear.unload(queue, limits)
    queue.add_due("again", 2)
    queue.requeue(MessageRef(AGAIN, 3), limits)
    assert (5, LaneId("again", 1), 3) == (queue.backlog, *place_of_head(queue))
    reads = [queue.next_to_read(9) for _ in range(3)]
    assert [("again", [3, 1, 2]), ("later", [1]), ("lanes", [1])] == [(read.kind, read.sequences) for read in reads]
    for read in reads:
        queue.finish_read(read)
        queue.fail_read(read)
    clear.discard(queue, LATER, limits)
    assert [AGAIN, AGAIN, AGAIN] == [place.lane for place in clear.drain(queue, [LATER, AGAIN], limits)]
    assert (1, LaneId("lanes", 1), 1) == (queue.backlog, *place_of_head(queue))


def test_read_of_a_replaced_stream_is_void():
    """K10, E12: of that stream only."""
    queue, limits = Queue("acme", 0, "mid", 1, 1), MemoryBudget()
    queue.add_due("again", 2)
    read = queue.next_to_read(9)
    clear.discard(queue, LATER, limits)
    assert read is queue.read
    clear.discard(queue, AGAIN, limits)
    assert not queue.finish_read(read)
    assert 0 == queue.backlog
