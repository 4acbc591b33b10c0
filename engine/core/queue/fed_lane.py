"""A lane with what its feeds bring: messages come in, in stream order, and go into their queues. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from evenlane.engine.core.lane.catch_up import CatchUp
from evenlane.engine.core.lane.lane import Lane
from evenlane.engine.core.queue.delay_heap import DelayHeap
from evenlane.engine.core.queue.entry import MessageRef, entry_of
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.settle_record import LogState
    from evenlane.engine.core.ports import LaneState, Stored
    from evenlane.engine.core.queue.entry import Entry, MemoryBudget
    from evenlane.engine.core.queue.queue import Queue

_E = ord("E")  # as PREFIX has it: one byte is found three times as fast


class LaneHost(Protocol):
    """What a lane needs of whoever feeds it."""

    def open_queue(self, lane: FedLane, subject: bytes, entry: Entry | None) -> Queue | None:
        """Find or make the queue of a subject. None if it belongs nowhere: then the message, if one is given, has gone
        to the dead letters.
        """

    @property
    def queue_ready(self) -> Callable[[Queue], None]:
        """To be called when a queue gets its first message ready, or has messages to be read."""


class FedLane(Lane):
    """One object with the lane, as `take_in` sees each message: a second one would cost it some loads."""

    def __init__(
        self,
        lane: LaneId,
        epoch: int,
        limits: MemoryBudget,
        host: LaneHost,
        lease: int = 0,
    ) -> None:
        self._limits, self._queue_ready = limits, host.queue_ready
        self._open_queue: Callable[[FedLane, bytes, Entry | None], Queue | None] = host.open_queue
        self.queues: dict[bytes, Queue] = {}
        self.absent = 0  # sequences that weren't there (E12)
        super().__init__(lane, epoch, lease)

    def _begin(self, created: str, high: int, high_at: int, horizon: int = 0) -> None:
        super()._begin(created, high, high_at, horizon)
        self.position = 0  # of the main feed
        self.catch_up: CatchUp | None = None
        self.delayed = DelayHeap()

    def recover(self, log: LogState, state: LaneState, high_at: int | None, horizon: int = 0) -> bool:
        known = super().recover(log, state, high_at, horizon)
        if known and not self.later:
            self.position = self.settled.watermark
        return known

    def reset(self, state: LaneState) -> None:
        for queue in self.queues.values():
            queue.forget(self, self._limits)
        super().reset(state)
        for queue in self.queues.values():  # what is left of it is of the other stream, and nobody has been told of it
            if queue.hand or queue.behind:
                self._queue_ready(queue)

    def _end(self) -> None:
        super()._end()
        for queue in self.queues.values():
            queue.forget(self, self._limits)
        self.queues = {}
        self.delayed = DelayHeap()
        self._open_queue = _none

    # ---- what was handed out, and comes back

    def take_back(self, sequences: Iterable[int], now: int) -> list[Queue]:
        """As `let_go`: what has come in already is next. The queues that got some."""
        touched: dict[int, Queue] = {}
        for subject, sequence in self.let_go(sequences, now):
            queue = self.queue_of(subject)
            if queue is not None:
                self.bring_back(queue, sequence)
                touched[id(queue)] = queue
        return list(touched.values())

    def bring_back(self, queue: Queue, sequence: int) -> None:
        """A message that was handed out, here or elsewhere, and wasn't handled: it is next."""
        place = MessageRef(self, sequence)
        if queue.order is not None and queue.order.out(place):
            queue.order.next.append(place)
            queue.behind = True
        elif self.id.kind == "later":
            queue.add_due(sequence)
        elif queue.spilled and sequence >= queue.spill_from:
            queue.spill(sequence)  # it is found there by its subject
        else:
            queue.put_back(False, [sequence])

    # ---- the feed

    def take_in(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        """The main feed's sink: messages in stream order, each once."""
        position = self.position
        if sequence != position + 1:
            if sequence <= position:
                return
            self.absent += sequence - position - 1
            self.settled.add_run(position + 1, sequence - 1)
        self.position = sequence
        if sequence > self.high:
            self.high, self.high_at = sequence, at
        if self.catch_up is not None and self.catch_up.passes_over(subject, sequence):
            return
        if sequence <= self.recovered and self.keeps(subject, sequence):
            return
        # (`entry_of`, without the price of its call)
        special = _E in headers and h.PREFIX in headers
        entry = (self, sequence, at, headers, body, len(headers) + len(body), special)
        queue = self.queues.get(subject) or self.queue_of(subject, entry)
        if queue is not None and queue.arrive(entry, self._limits):
            self._queue_ready(queue)

    def take_in_tail(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        """The tail feed's sink while the main feed still catches up."""
        catch_up = self.catch_up
        if catch_up is None:
            return  # the stream was replaced meanwhile
        self._tail_came_to(catch_up, sequence, at)
        if sequence <= self.recovered and self.keeps(subject, sequence):
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
            self.settled.add_run(catch_up.tail + 1, sequence - 1)
        catch_up.tail = sequence
        if sequence > self.high:
            self.high, self.high_at = sequence, at

    def _spill(self, queue: Queue, sequence: int) -> None:
        """What came before it isn't all there yet: it waits its turn in the spill."""
        was_empty = not queue.backlog
        queue.spill(sequence)
        if was_empty:
            self._queue_ready(queue)

    def take_in_head(self, subject: bytes, sequence: int, at: int, _headers: bytes, size: int) -> bool:
        """Of both feeds: a message whose body was left in the stream, as the feed lags by bytes. False if it belongs to
        no queue: then the body is wanted.
        """
        queue = self.queue_of(subject)
        if queue is None:
            return False
        catch_up = self.catch_up
        if catch_up is not None and sequence > catch_up.last:
            self._tail_came_to(catch_up, sequence, at)
            passed_over, incomplete = False, subject in catch_up.incomplete
        else:
            if sequence <= self.position:
                return True
            self._came_to(sequence, at)
            passed_over, incomplete = catch_up is not None and catch_up.passes_over(subject, sequence), False
        if passed_over or (sequence <= self.recovered and self.keeps(subject, sequence)):
            return True
        if incomplete:
            self._spill(queue, sequence)
        elif queue.arrive_unread(sequence, size, self._limits):
            self._queue_ready(queue)
        return True

    def _came_to(self, sequence: int, at: int) -> None:
        """As in `take_in`."""
        if sequence != self.position + 1:
            self.absent += sequence - self.position - 1
            self.settled.add_run(self.position + 1, sequence - 1)
        self.position = sequence
        if sequence > self.high:
            self.high, self.high_at = sequence, at

    def expect_backlog(self, counts: dict[str, int], last: int) -> None:
        """What the lane held, by subject, when the catch-up up to `last` began."""
        self.catch_up = CatchUp(counts, last)

    def next_ahead(self, subject: bytes) -> int | None:
        """From which sequence on the next message of a subject in the backlog is to be read, if it isn't waited for;
        None if nothing more of it is to come.
        """
        catch_up = self.catch_up
        if catch_up is None or subject not in catch_up.incomplete:
            return None
        start = self.settled.next_open(max(self.position, catch_up.ahead(subject)) + 1)
        if start <= catch_up.last:
            return start
        catch_up.all_came(subject)
        return None

    def take_ahead(self, subject: bytes, found: Iterable[Stored]) -> Queue | None:
        """The next messages of a subject, as read from `next_ahead` on; there are no more if these are none. Its queue,
        which may have got some.
        """
        catch_up = self.catch_up
        if catch_up is None or subject not in catch_up.incomplete or (queue := self.queue_of(subject)) is None:
            return None
        there = [each for each in found if each.sequence <= catch_up.last]
        if not there:
            catch_up.all_came(subject)
        for each in there:
            if each.sequence <= self.position:
                continue  # the feed has brought it meanwhile
            catch_up.came_ahead(subject, each.sequence)
            if not self.keeps(subject, each.sequence):
                queue.arrive(entry_of(self, each.sequence, each.at, each.headers, each.body), self._limits)
        return queue

    def caught_up(self, last: int) -> list[Queue]:
        """The catch-up has brought all up to `last`, from here on the tail feed is the main one. Returns the
        queues for which something came in meanwhile.
        """
        if last > self.position:
            self.settled.add_run(self.position + 1, last)
        self.position = max(self.position, self.fed_to)
        self.catch_up = None
        return [queue for queue in self.queues.values() if queue.spilled]

    @property
    def catching_up(self) -> bool:
        """A backlog is still coming in."""
        return self.catch_up is not None

    def lacks(self, subject: bytes) -> bool:
        """Whether some of a queue's backlog is still to come in."""
        return self.catch_up is not None and subject in self.catch_up.incomplete

    @property
    def lacking(self) -> AbstractSet[bytes]:
        """The subjects of which some is still to come in."""
        return self.catch_up.incomplete.keys() if self.catch_up is not None else frozenset()

    def smallest(self, most: int) -> list[bytes]:
        """Of these, the subjects with the least to come, at most `most`."""
        return self.catch_up.smallest(most) if self.catch_up is not None else []

    @property
    def fed_to(self) -> int:
        """All up to here has come in, by the main feed or the tail feed."""
        return self.position if self.catch_up is None else self.catch_up.tail

    def queue_of(self, subject: bytes, entry: Entry | None = None) -> Queue | None:
        """The queue of a subject, and of this message of it; None if it belongs nowhere."""
        queue = self.queues.get(subject)
        if queue is None:
            queue = self._open_queue(self, subject, entry)
            if queue is not None:
                self.queues[subject] = queue
        return queue

    # ---- the later stream

    def take_in_later(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        """The sink of a later stream's feeds: keep sequence and due time, read the payload when it is due."""
        if sequence > self.high:
            self.high, self.high_at = sequence, at
        if self.keeps(subject, sequence):
            return
        if subject not in self.queues and self.queue_of(subject, entry_of(self, sequence, at, headers, body)) is None:
            return
        self.queues[subject].sized(len(headers) + len(body))
        self.delayed.add(subject, sequence, instant(headers, h.DUE, at))

    def release_due(self, store_now: int, limit: int) -> list[Queue]:
        """Move up to `limit` messages whose time has come into their queues; the queues that got some."""
        touched: dict[int, Queue] = {}
        for subject, sequence in self.delayed.release(store_now, limit):
            queue = self.queues[subject]
            queue.add_due(sequence)
            touched[id(queue)] = queue
        return list(touched.values())


def _none(*_: object) -> None:
    """The queue of a message that comes in when nobody waits for it any more."""
