"""A lane with a stream, a settle log and an owner that does the work of a node, step by step: for tests of FedLane."""

from evenlane.engine.base.names import LaneId
from evenlane.engine.core.lane.log_state import fold
from evenlane.engine.core.lane.settle_log import Append
from evenlane.engine.core.ports import LaneState, Stored
from evenlane.engine.core.queue.entry import MemoryBudget, entry_of
from evenlane.engine.core.queue.fed_lane import FedLane
from evenlane.engine.core.queue.queue import Queue
from evenlane.engine.core.queue.queue_rules import QueueRules, low_mark
from evenlane.engine.core.records import settle_record
from tests.support.lane_host import Host

LANE = LaneId("lanes", 3)


class Stream:
    """Sequences with a subject and a time; no two messages have the same time."""

    def __init__(self) -> None:
        self.made = self.time = 0
        self.replace()

    def replace(self) -> None:
        self.made += 1
        self.created = f"stream {self.made}"
        self.held: dict[int, tuple[bytes, int]] = {}
        self.times = {0: 0}  # of deleted ones as well
        self.last = self.last_at = self.purged = 0

    def put(self, subject: bytes) -> None:
        self.time += 1
        self.last += 1
        self.last_at = self.time
        self.held[self.last] = (subject, self.time)
        self.times[self.last] = self.time

    def roll_back(self, to: int) -> None:
        self.held = {s: message for s, message in self.held.items() if s <= to}
        self.last = to
        self.last_at = self.times[to]

    def purge(self, to: int) -> None:
        self.held = {s: message for s, message in self.held.items() if s > to}
        self.purged = max(self.purged, to)

    def state(self) -> LaneState:
        first = min(self.held, default=self.last + 1) if self.last else 0
        return LaneState(self.created, first, self.last, self.last_at)

    def time_of(self, sequence: int) -> int | None:
        """The answer that a node gets before it compares identities."""
        state = self.state()
        if sequence == 0 or not state.first <= sequence <= state.last:
            return None
        if sequence == state.last and state.at:
            return state.at
        return self.held[sequence][1] if sequence in self.held else 0

    def after(self, position: int) -> int | None:
        return min((s for s in self.held if s > position), default=None)


class Owner:
    """An owner. `limits` are small, so that a few messages reach the index and the spill."""

    def __init__(self, stream: Stream, log: list[bytes], epoch: int, limits: MemoryBudget) -> None:
        self.stream, self.log, self.limits = stream, log, limits
        self.queues: dict[bytes, Queue] = {}
        self.lane = FedLane(LANE, epoch, limits, Host(self._open))
        self.catch_up_to: int | None = None
        state = stream.state()
        folded = fold(log)
        self.knew = self.lane.recover(folded, state, stream.time_of(folded.high))

    def _open(self, _lane: FedLane, subject: bytes, _entry: object) -> Queue:
        queue = self.queues[subject] = Queue(subject.decode(), 0, "mid", 1, LANE.partition)
        ahead = self.limits.read_ahead
        queue.rules = QueueRules(asleep=False, ahead=ahead, low=low_mark(ahead))
        return queue

    # ---- feeding

    def begin_with_a_tail(self, too_many: int = 0) -> None:
        """`too_many` more messages of each subject are said to be there; then where the last one is, is known."""
        counts: dict[str, int] = {}
        ends: dict[str, int] = {}
        for sequence, (subject, _) in self.stream.held.items():
            counts[subject.decode()] = counts.get(subject.decode(), too_many) + 1
            ends[subject.decode()] = sequence
        self.catch_up_to = self.stream.last
        self.lane.expect_backlog(counts, self.stream.last, ends if too_many else {})

    def feed(self, *, headless: bool = False) -> bool:
        """Deliver one message of the main feed; False if there is none. `headless`: its body stays in the stream."""
        sequence = self.stream.after(self.lane.position)
        if self.catch_up_to is not None and (sequence is None or sequence > self.catch_up_to):
            self.lane.end_catch_up(self.catch_up_to)
            self.catch_up_to = None
            return True
        if sequence is None:
            return False
        self._deliver(self.lane.take_in, sequence, headless=headless)
        return True

    def feed_tail(self, *, headless: bool = False) -> bool:
        sequence = self.stream.after(self.lane.fed_to) if self.catch_up_to is not None else None
        if sequence is None:
            return False
        self._deliver(self.lane.take_in_tail, sequence, headless=headless)
        return True

    def read_ahead(self, subject: bytes, limit: int = 1) -> None:
        """Read ahead once, as engine/node/partitions/read_ahead.py does."""
        start = self.lane.next_ahead(subject)
        if start is not None:
            found = [s for s in sorted(self.stream.held) if s >= start and self.stream.held[s][0] == subject][:limit]
            stored = [Stored(s, self.stream.held[s][1], subject.decode(), b"", b"%d" % s) for s in found]
            self.lane.take_ahead(subject, stored)

    def _deliver(self, sink, sequence: int, *, headless: bool) -> None:
        subject, at = self.stream.held[sequence]
        if headless:
            assert self.lane.take_in_head(subject, sequence, at, b"", len(b"%d" % sequence))
        else:
            sink(subject, sequence, at, b"", b"%d" % sequence)

    # ---- queues, as engine/node/queues/payload_reader.py treats them

    def read(self, subject: bytes, count: int, *, fails: bool = False) -> None:
        """Load the next messages of a queue. Missing ones are settled (E12)."""
        queue, lane = self.queues[subject], self.lane
        if not queue.unread and lane.is_lacking(subject):
            return
        if not queue.unread and queue.spilled:
            self._refill(queue, subject, count)
        read = queue.next_to_read(count)
        assert queue.finish_read(read)
        if fails:
            queue.fail_read(read)
            return
        for sequence in read.sequences:
            if sequence in self.stream.held:
                _, at = self.stream.held[sequence]
                queue.hold(entry_of(lane, sequence, at, b"", b"%d" % sequence), self.limits)
            else:
                lane.settle(sequence, lane.generation, 0)
        queue.behind = bool(queue.unread or queue.spilled)

    def _refill(self, queue: Queue, subject: bytes, limit: int) -> None:
        lane, position, before = self.lane, self.lane.fed_to, queue.spilled
        held = self.stream.held
        found = [s for s in sorted(held) if s >= queue.spill_from and held[s][0] == subject][:limit]
        known = [s for s in found if s <= position]
        queue.waiting.extend([s for s in known if s not in lane.settled])
        if len(found) == limit and len(known) == limit:
            queue.spilled = max(1, queue.spilled - len(known))
            queue.spill_from = known[-1] + 1
        else:
            queue.spilled -= before
            queue.spill_from = position + 1

    def probe(self) -> bool:
        """Settle the message that pins the watermark if it was deleted in the spill, where no reader misses it."""
        sequence = self.lane.removal.durable_watermark + 1
        if sequence in self.stream.held or sequence > self.lane.position:
            return False
        return self.lane.settle(sequence, self.lane.generation, 0)

    # ---- the log

    def store(self, append: Append) -> None:
        if append.record.checkpoint:
            self.log.clear()
        self.log.append(settle_record.encode(append.record))

    def learn(self, append: Append) -> None:
        """Read in the log whether an append without an ack was stored."""
        log = fold(self.log)
        if (log.epoch, log.number) == (self.lane.epoch, append.record.number):
            self.lane.log.on_append(append)
        else:
            self.lane.log.withdraw(append)
