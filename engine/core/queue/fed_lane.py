"""Sorts the messages of a lane's feeds into queues, in stream order. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from evenlane.engine.core.lane.catch_up import CatchUp
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.queue import clear
from evenlane.engine.core.queue.delay_heap import DelayHeap
from evenlane.engine.core.queue.entry import entry_of
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import read_instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.log_state import LogState
    from evenlane.engine.core.ports import LaneState, Stored
    from evenlane.engine.core.queue.entry import Entry, MemoryBudget
    from evenlane.engine.core.queue.queue import Queue

_REPEATED = 100  # settled messages that a delay stream's feeds may deliver before the log says so
_E = ord("E")  # a byte of PREFIX: searching for a single byte first is three times as fast


class LaneHost(Protocol):
    """The services that a lane needs from the part that feeds it."""

    def open_queue(self, lane: FedLane, subject: bytes, entry: Entry | None) -> Queue | None:
        """Find or create the queue of a subject. None if the subject is unroutable, or its project's messages aren't
        for this subscription; a message passed as `entry` has then been dead-lettered or settled.
        """

    @property
    def needs_stray_bodies(self) -> bool:
        """Whether a message that gets no queue is dead-lettered, which needs its body."""

    @property
    def on_queue_ready(self) -> Callable[[Queue], None]:
        """Callback for a queue that has gained its first ready message, or has messages to read."""


class FedLane(Lane):
    """A lane together with its feed position and its queues.

    It extends `Lane` instead of wrapping it, because `take_in` runs for each message: a second object would cost
    several attribute loads.

    Invariants:
    - The main feed has delivered up to `position`. In the main stream, each sequence up to there is settled, dropped,
      held for a previous owner, in a queue, or handed out.
    - While the lane catches up (`catch_up` isn't None), the main feed delivers the backlog, and a tail feed, which
      begins behind it, has delivered up to `catch_up.tail`.
    """

    def __init__(
        self,
        lane: LaneId,
        epoch: int,
        limits: MemoryBudget,
        host: LaneHost,
        lease: int = 0,
    ) -> None:
        self._limits, self._queue_ready, self._needs_stray_bodies = (
            limits,
            host.on_queue_ready,
            host.needs_stray_bodies,
        )
        self._open_queue: Callable[[FedLane, bytes, Entry | None], Queue | None] = host.open_queue
        self.queues: dict[bytes, Queue] = {}
        self.missing = 0  # sequences that the feed skipped because the stream no longer has them (E12)
        super().__init__(lane, epoch, lease)

    def _begin(self, created: str, high: int, high_at: int, horizon: int = 0) -> None:
        super()._begin(created, high, high_at, horizon)
        self.position = 0  # the last sequence that the main feed has delivered
        self._most_repeated = _REPEATED
        self.catch_up: CatchUp | None = None
        self.delayed = DelayHeap()

    def recover(self, log: LogState, state: LaneState, high_at: int | None, horizon: int = 0) -> bool:
        known = super().recover(log, state, high_at, horizon)
        if known and not self.later:
            self.position = self.settled.watermark
        return known

    def begin_after(self, watermark: int, state: LaneState, horizon: int) -> None:
        super().begin_after(watermark, state, horizon)
        if not self.later:
            self.position = watermark

    def reset(self, state: LaneState) -> None:
        for queue in self.queues.values():
            clear.discard(queue, self, self._limits)
        super().reset(state)
        # the rest is from the partition's other stream; the host doesn't know of it yet
        for queue in self.queues.values():
            if queue.ready or queue.behind:
                self._queue_ready(queue)

    def _end(self) -> None:
        super()._end()
        for queue in self.queues.values():
            clear.discard(queue, self, self._limits)
        self.queues = {}
        self.delayed = DelayHeap()
        self._open_queue = _none

    # ---- the feed

    def take_in(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        """The main feed's sink. Messages come in stream order; a repeated one is ignored."""
        position = self.position
        if sequence != position + 1:
            if sequence <= position:
                return
            self.missing += sequence - position - 1
            self._skip(position + 1, sequence - 1)
        self.position = sequence
        if sequence > self.high:
            self.high, self.high_at = sequence, at
        if self.catch_up is not None and self.catch_up.should_skip(subject, sequence):
            return
        if sequence <= self.recovered and self.must_keep_out(subject, sequence):
            return
        # (`entry_of`, inlined: this runs for each message)
        special = _E in headers and h.PREFIX in headers
        entry = (self, sequence, at, headers, body, len(headers) + len(body), special)
        queue = self.queues.get(subject) or self.queue_of(subject, entry)
        if queue is not None and queue.arrive(entry, self._limits):
            self._queue_ready(queue)

    def take_in_tail(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        """The tail feed's sink, used while the main feed still catches up."""
        catch_up = self.catch_up
        if catch_up is None:
            return  # the stream was replaced meanwhile
        self._tail_came_to(catch_up, sequence, at)
        if sequence <= self.recovered and self.must_keep_out(subject, sequence):
            return
        entry = entry_of(self, sequence, at, headers, body)
        queue = self.queue_of(subject, entry)
        if queue is None:
            return
        if subject in catch_up.incomplete:
            self._spill(queue, sequence)
        elif queue.arrive(entry, self._limits):
            self._queue_ready(queue)

    def _tail_came_to(self, catch_up: CatchUp, sequence: int, at: int) -> None:
        if sequence > catch_up.tail + 1:
            self._skip(catch_up.tail + 1, sequence - 1)
        catch_up.tail = sequence
        self.note_end(sequence, at)

    def _spill(self, queue: Queue, sequence: int) -> None:
        """Spill a message of a queue whose backlog is still incomplete, so that older messages come before it."""
        was_empty = not queue.backlog
        queue.spill(sequence)
        if was_empty:
            self._queue_ready(queue)

    def take_in_head(self, subject: bytes, sequence: int, at: int, headers: bytes, size: int) -> bool:
        """The sink of both feeds for a message whose body stays in the stream, because the feed lags by bytes.

        `size` is the size of the body (bytes). False if the message belongs to no queue and the dead letters need its
        body: the caller must then read the body and deliver it through `take_in`.
        """
        queue = self.queue_of(subject)
        if queue is None and self._needs_stray_bodies:
            return False
        catch_up = self.catch_up
        if catch_up is not None and sequence > catch_up.last:
            self._tail_came_to(catch_up, sequence, at)
            is_skipped, incomplete = False, subject in catch_up.incomplete
        else:
            if sequence <= self.position:
                return True
            self._advance_to(sequence, at)
            is_skipped, incomplete = catch_up is not None and catch_up.should_skip(subject, sequence), False
        if is_skipped or (sequence <= self.recovered and self.must_keep_out(subject, sequence)):
            return True
        if queue is None:
            self._open_queue(self, subject, entry_of(self, sequence, at, headers, b""))  # settles it
        elif incomplete:
            self._spill(queue, sequence)
        elif queue.arrive_unread(sequence, size, self._limits):
            self._queue_ready(queue)
        return True

    def take_in_gap(self, first: int, last: int, found: Iterable[Stored]) -> None:
        """Take in `found`, which is all that the stream holds of the sequences first..last. These come behind the main
        feed's position, and none of them is settled; all in between are settled, and may still be stored.
        """
        for each in found:
            self._skip_missing(first, each.sequence - 1)
            self.position = each.sequence - 1
            self.take_in(each.subject.encode(), each.sequence, each.at, each.headers, each.body)
            first = each.sequence + 1
        self._skip_missing(first, last)
        self.position = last

    def _skip_missing(self, first: int, last: int) -> None:
        if first <= last:
            self.missing += last - first + 1
            self._skip(first, last)

    def _skip(self, first: int, last: int) -> None:
        """Skip sequences that the stream doesn't hold: they were settled and removed, or deleted by hand."""
        self.settled.add_run(first, last)
        self.removal.note_missing(first, last)

    def _advance_to(self, sequence: int, at: int) -> None:
        """Advance the main feed's position; `take_in` has the same code inlined."""
        if sequence != self.position + 1:
            self.missing += sequence - self.position - 1
            self._skip(self.position + 1, sequence - 1)
        self.position = sequence
        self.note_end(sequence, at)

    def expect_backlog(self, counts: dict[str, int], last: int, ends: Mapping[str, int] = MappingProxyType({})) -> None:
        """Begin a catch-up: the lane holds `counts` messages per subject up to the sequence `last`; `ends` as in
        `CatchUp`.
        """
        self.catch_up = CatchUp(counts, last, ends)

    def next_ahead(self, subject: bytes) -> int | None:
        """The sequence from which to read a subject's backlog ahead of the main feed; None if its backlog
        is complete.
        """
        catch_up = self.catch_up
        if catch_up is None or subject not in catch_up.incomplete:
            return None
        start = self.settled.next_open(max(self.position, catch_up.ahead(subject)) + 1)
        if start <= catch_up.last:
            return start
        catch_up.mark_complete(subject)
        return None

    def take_ahead(self, subject: bytes, found: Iterable[Stored]) -> Queue | None:
        """Take in a subject's next messages, as read from `next_ahead` on. If `found` has none of the backlog, the
        subject's backlog is complete. Returns the queue, which may have gained messages.
        """
        catch_up = self.catch_up
        if catch_up is None or subject not in catch_up.incomplete or (queue := self.queue_of(subject)) is None:
            return None
        there = [each for each in found if each.sequence <= catch_up.last]
        if not there:
            catch_up.mark_complete(subject)
        for each in there:
            if each.sequence <= self.position:
                continue  # the feed has delivered it meanwhile
            catch_up.note_ahead(subject, each.sequence)
            if not self.must_keep_out(subject, each.sequence):
                queue.arrive(entry_of(self, each.sequence, each.at, each.headers, each.body), self._limits)
        return queue

    def end_catch_up(self, last: int) -> list[Queue]:
        """End the catch-up: the main feed has delivered everything up to `last`, and the tail feed becomes the main
        feed. Returns the queues that must refill from their spill.
        """
        if last > self.position:
            self._skip(self.position + 1, last)
        self.position = max(self.position, self.fed_to)
        self.catch_up = None
        return [queue for queue in self.queues.values() if queue.spilled]

    @property
    def is_catching_up(self) -> bool:
        """Whether part of the backlog hasn't been delivered yet."""
        return self.catch_up is not None

    def is_lacking(self, subject: bytes) -> bool:
        """Whether part of a subject's backlog hasn't been delivered yet."""
        return self.catch_up is not None and subject in self.catch_up.incomplete

    @property
    def lacking(self) -> AbstractSet[bytes]:
        """The subjects whose backlog is incomplete."""
        return self.catch_up.incomplete.keys() if self.catch_up is not None else frozenset()

    def smallest(self, most: int) -> list[bytes]:
        """Up to `most` subjects of an incomplete backlog, in rising order of the messages that remain."""
        return self.catch_up.smallest(most) if self.catch_up is not None else []

    @property
    def fed_to(self) -> int:
        """The sequence up to which the feeds have come: the tail feed during a catch-up, otherwise the main feed."""
        return self.position if self.catch_up is None else self.catch_up.tail

    def queue_of(self, subject: bytes, entry: Entry | None = None) -> Queue | None:
        """The queue of a subject, created if it is new. None if the host has none for it; `entry` is then dead-lettered
        or settled.
        """
        queue = self.queues.get(subject)
        if queue is None:
            queue = self._open_queue(self, subject, entry)
            if queue is not None:
                self.queues[subject] = queue
        return queue

    # ---- the delay stream

    def note_end(self, sequence: int, at: int) -> None:
        """Note the arrival (unix ns) of a message, which may be the stream's last."""
        if sequence > self.high:
            self.high, self.high_at = sequence, at

    def note_later(self, subject: bytes, sequence: int, at: int) -> None:
        """Note a message that a feed of the delay stream has delivered."""
        self.note_end(sequence, at)
        self.hours.note(subject, sequence, settled=sequence in self.settled)
        if self.hours.repeated >= self._most_repeated:
            self._most_repeated *= 2  # a paused project's message holds all progress of its hour
            self.log.checkpoint_due = not self.log.closed

    def take_in_later(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        """The sink of a delay stream's feeds. Keeps sequence and due time only; the payload is read once the message is
        due.
        """
        self.note_later(subject, sequence, at)
        if self.must_keep_out(subject, sequence):
            return
        if subject not in self.queues and self.queue_of(subject, entry_of(self, sequence, at, headers, body)) is None:
            return
        self.queues[subject].note_size(len(headers) + len(body))
        self.delayed.add(subject, sequence, read_instant(headers, h.DUE, at))

    def release_due(self, store_now: int, limit: int) -> list[Queue]:
        """Move up to `limit` due messages into their queues. Returns the queues that gained messages."""
        touched: dict[int, Queue] = {}
        for subject, sequence in self.delayed.release(store_now, limit):
            queue = self.queues[subject]
            queue.add_due(self.id.kind, sequence)
            touched[id(queue)] = queue
        return list(touched.values())


def _none(*_: object) -> None:
    """The `open_queue` of a lane that has ended: late messages belong to no queue."""
