"""A lane as its owner keeps it: which stream it is, what came in, and what of that may be handed out. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.lane.attempts import Marks, own
from evenlane.engine.core.lane.catch_up import CatchUp
from evenlane.engine.core.lane.handoff_state import HandOver, Seen, same_stream
from evenlane.engine.core.lane.settle_log import LaneLog
from evenlane.engine.core.lane.settled_set import SettledSet
from evenlane.engine.core.lane.truncation import Removal
from evenlane.engine.core.queue.delay_heap import Delayed
from evenlane.engine.core.queue.key_order import Place
from evenlane.engine.core.queue.queue import entry_of
from evenlane.engine.core.wire import headers as h
from evenlane.engine.core.wire.header_values import instant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from collections.abc import Set as AbstractSet

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.settle_log import Append
    from evenlane.engine.core.lane.settle_record import LogState
    from evenlane.engine.core.ports import LaneState, Stored
    from evenlane.engine.core.queue.queue import Entry, Limits, Queue

_E = ord("E")  # as PREFIX has it: one byte is found three times as fast


class Lane:
    """One stream of a partition under one epoch, claimed under a lease. `now` is monotonic ns throughout.

    `open_queue` finds or makes the queue of a subject (None: it belongs nowhere, and the message, if one is
    given, has gone to the dead letters), `at_hand` is told when a queue gets its first message at hand. `log` is told
    what is settled, `removal` says what of the stream may go.
    """

    def __init__(
        self,
        lane: LaneId,
        epoch: int,
        limits: Limits,
        open_queue: Callable[[Lane, bytes, Entry | None], Queue | None],
        at_hand: Callable[[Queue], None],
        lease: int = 0,
    ) -> None:
        self.id, self.epoch, self.lease = lane, epoch, lease
        self.later = lane.kind == "later"  # its messages are delayed ones and retries
        self._limits, self._open_queue, self._at_hand = limits, open_queue, at_hand
        self.queues: dict[bytes, Queue] = {}
        self.generation = 0  # grows with each reset: results of an older one are void
        self.verified = -1  # the store's incarnation in which the identity was last confirmed
        self.fenced = False
        self.handover: HandOver | None = None  # once nothing more of it is handed out here
        self.absent = 0  # sequences that weren't there (E12)
        self.log = LaneLog(epoch, lease)
        self._begin("", 0, 0)

    def _begin(self, created: str, high: int, high_at: int, horizon: int = 0) -> None:
        # What the stream holds is part of its identity, fed or not: the catch-up counts on it.
        self.created, self.high, self.high_at = created, high, high_at
        self.position = 0
        self.horizon = (
            horizon  # up to here, a message is recorded in flight before it starts (engine/core/lane/crash_horizon.py)
        )
        self.recovered = 0  # up to here, what the feed brings may be settled already, or held
        # What a former owner's handlers still work on, or have ended: not handed out here. Its subject, once fed.
        self.held: dict[int, bytes | None] = {}
        self.blocked: dict[int, float] = {}  # what blocked former owners' event loops until their ends, for how many s
        self.dropped: set[int] = set()  # singly and on purpose: settled, but perhaps in an index still
        self.catch_up: CatchUp | None = None
        self.delayed = Delayed()
        self._settled_before(SettledSet(), Marks())

    def _settled_before(self, settled: SettledSet, marks: Marks) -> None:
        self.settled, self.marks = settled, marks
        self.removal = Removal(self.id.kind, settled)
        self.log.begin(settled, marks, self.removal)
        self.news = self.log.news  # settled, not yet logged; the first entry is announced to log and settler

    # ---- take-over and identity

    def recover(self, log: LogState, state: LaneState, high_at: int | None, horizon: int = 0) -> bool:
        """Start from what the log says, if it speaks of this very stream; False if it doesn't: then nothing is known of
        its last owner, and all that it holds is within the horizon.

        `high_at` is the arrival time of the message that stands at the log's `high` now; 0 if it is gone, None
        if there can't be one.
        """
        self._begin(state.created, state.last, state.at, state.last)
        if log.created == "":
            self.horizon = horizon
            return True
        if high_at and log.high_at and high_at != log.high_at:
            return False
        if not same_stream(log.created, log.high, 0, state):
            return False
        self.horizon = horizon
        self._settled_before(log.settled, Marks(log.marks))
        self.removal.take_over(state.first)
        if state.last == log.high:
            self.high_at = state.at or log.high_at
        watermark = log.settled.watermark
        self.recovered = max([watermark, *(last for _, last in log.settled.above())])
        if self.id.kind == "lanes":
            self.position = watermark
        return True

    @property
    def seen(self) -> Seen:
        """What the stream is recognised by."""
        return Seen(self.created, self.high, self.high_at, self.removal.purged)

    def same(self, state: LaneState, high_at: int | None) -> bool:
        return self.seen.same(state, high_at)

    def reset(self, state: LaneState) -> None:
        """The stream was replaced or rolled back: all that is known of it is void."""
        self.generation += 1
        if self.handover is not None:
            self.handover.running.clear()  # what they return is void, too
        for queue in self.queues.values():
            queue.forget(self, self._limits)
        self._begin(state.created, state.last, state.at, min(self.horizon, state.last))
        for queue in self.queues.values():  # what is left of it is of the other stream, and nobody has been told of it
            if queue.hand or queue.behind:
                self._at_hand(queue)

    # ---- its end here

    def abandon(self) -> None:
        """This object's part is over: nothing more of it is handed out, and results of it are void."""
        self._end()
        self.fenced = True
        self.handover = None

    def stop(self, running: Iterable[int]) -> None:
        """Nothing more of it is handed out here; these are still being handled, and may end."""
        self.handover = HandOver(self.generation, self.seen, set(running))
        self._end()

    def left(self) -> None:
        """What still runs has killed nothing, and the process ends: nobody waits for it."""
        if self.handover is not None:
            self.handover.running.clear()

    @property
    def ended(self) -> bool:
        """Nothing of it runs here any more, nor will."""
        return self.handover is not None and not self.handover.running

    @property
    def to_close(self) -> bool:
        """The log is still to be told of its clean end."""
        return self.ended and self.log.begun and not self.log.closed and not self.fenced

    def _end(self) -> None:
        self.generation += 1
        for queue in self.queues.values():
            queue.forget(self, self._limits)
        self.queues = {}
        self.delayed = Delayed()
        self._open_queue = _none

    def cut_off(self) -> None:
        """Append nothing more: what isn't durable by now, and what ends later, is for the next owner to settle."""
        self.fenced = True
        if self.handover is not None:
            done, marked = self.log.untold()
            failed = [(sequence, own(self.marks.of.get(sequence, 0))) for sequence in sorted(marked - done)]
            self.handover.cut_off(done, failed)

    def untouched(self, sequence: int, generation: int) -> None:
        """A message handed out before `stop` wasn't handled after all: the next owner may have it."""
        if self.handover is not None and self.handover.runs(sequence, generation):
            self.handover.untouched(sequence)

    def current(self, sequence: int, generation: int) -> bool:
        """Whether a message handed out in this generation is still this lane's to end."""
        over = self.handover
        return generation == self.generation or (over is not None and over.runs(sequence, generation))

    # ---- what a former owner's handlers still work on

    def hold(self, epoch: int, running: Iterable[int], done: Iterable[int] = ()) -> None:
        """Hand these out only when they are let go: under this epoch they are being handled still, or have ended. The
        log is told of the former, as their holder may outlive this owner, and then die.
        """
        running = [s for s in running if s not in self.settled]
        for sequence in running:
            self.marks.hold(sequence, epoch)
        self.held |= dict.fromkeys(s for s in [*running, *done] if s not in self.settled and s not in self.held)
        self.recovered = max([self.recovered, *self.held])

    def let_go(self, sequences: Iterable[int], now: int) -> list[Queue]:
        """Who held these is gone, and hasn't ended them: their turn comes again. The queues that got some."""
        touched: dict[int, Queue] = {}
        self.log.note(now)
        for sequence in sequences:
            self.marks.let_go(sequence)
            subject = self.held.pop(sequence, None)
            if subject is None or sequence in self.settled:
                continue  # it wasn't held, or it will come in by the feed
            queue = self.queue_of(subject)
            if queue is not None:
                self.bring_back(queue, sequence)
                touched[id(queue)] = queue
        return list(touched.values())

    def bring_back(self, queue: Queue, sequence: int) -> None:
        """A message that was handed out, here or elsewhere, and wasn't handled: it is next."""
        place = Place(self, sequence)
        if queue.order is not None and queue.order.out(place):
            queue.order.next.append(place)
            queue.behind = True
        elif self.id.kind == "later":
            queue.add_due(sequence)
        elif queue.spilled and sequence >= queue.spill_from:
            queue.spill(sequence)  # it is found there by its subject
        else:
            queue.put_back(False, [sequence])

    def keeps(self, subject: bytes, sequence: int) -> bool:
        """Whether a message that comes in is settled, dropped, or held."""
        if sequence in self.held:
            self.held[sequence] = subject
            return True
        return sequence in self.settled or sequence in self.dropped

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
            self._at_hand(queue)

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
            self._at_hand(queue)

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
            self._at_hand(queue)

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
            self._at_hand(queue)
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

    # ---- settling

    def settle(self, sequence: int, generation: int, now: int) -> bool:
        """A message has ended for good; durable once the log's next record is acknowledged, or the next owner's. False
        if it isn't this lane's any more.
        """
        if generation != self.generation:
            over = self.handover
            if over is None or not over.runs(sequence, generation):
                return False
            if over.settled(sequence):
                return True
        if not self.news:
            self.log.note(now)
        self.news.append(sequence)
        return True

    def failed_late(self, sequence: int, generation: int, again_at: int, now: int) -> bool:
        """As `LaneLog.mark_failed`, after `stop`: it is for the next owner to hear, by the log or from whoever tells of
        the hand-over. False if it isn't this lane's any more.
        """
        over = self.handover
        if over is None or not over.runs(sequence, generation):
            return False
        self.log.mark_failed(sequence, again_at, now)
        over.has_failed(sequence, self.marks.of[sequence])
        return True

    def cut(self, now: int, *, fence: bool = False) -> Append | None:
        """The log's next record; None while the last one is under way or there is nothing to say (but for a `fence`),
        and once nothing more may be appended.
        """
        if self.fenced:
            return None
        return self.log.cut(self.seen, now, horizon=self.horizon, fence=fence, last=self.ended)


def _none(*_: object) -> None:
    """The queue of a message that comes in when nobody waits for it any more."""
