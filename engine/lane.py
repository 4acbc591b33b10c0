"""A lane as its owner keeps it: what came in, what is settled, and what the settle log is to be told. Pure."""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from engine import headers as h
from engine import settlelog
from engine.delayed import Delayed
from engine.handover import HandOver, Seen, same_stream
from engine.index import Entry
from engine.marks import Marks, own
from engine.order import Place
from engine.settled import SettledSet, runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine.index import Limits, Queue
    from engine.names import LaneId
    from engine.ports import LaneState

CHECKPOINT_EVERY = 100  # appends; at most this many records are read at a take-over
_ALL = 1 << 62
_MOST_MARKS = 1_000  # news of them in one record, so that it fits a message
_MOST_DONE = 40_000  # told to the next owner, so that it fits a transaction in etcd; the rest is handled again


class Append(NamedTuple):
    """One record to append to the log: made by `Lane.cut`, ended by `Lane.acknowledged` or `Lane.withdraw`."""

    record: settlelog.Record
    sequences: list[int]
    since: int
    generation: int
    marked: list[int]


class Lane:
    """One stream of a partition under one epoch. `now` is monotonic ns throughout.

    `open_queue` finds or makes the queue of a subject (None: it belongs nowhere, and the message, if one is
    given, has gone to the dead letters), `at_hand` is told when a queue gets its first message at hand.
    """

    def __init__(
        self,
        lane: LaneId,
        epoch: int,
        limits: Limits,
        open_queue: Callable[[Lane, bytes, Entry | None], Queue | None],
        at_hand: Callable[[Queue], None],
    ) -> None:
        self.id, self.epoch = lane, epoch
        self._limits, self._open_queue, self._at_hand = limits, open_queue, at_hand
        self.queues: dict[bytes, Queue] = {}
        self.generation = 0  # grows with each reset: results of an older one are void
        self.verified = -1  # the store's incarnation in which the identity was last confirmed
        self.fenced = False
        self.handover: HandOver | None = None  # once nothing more of it is handed out here
        self.absent = 0  # sequences that weren't there (E12)
        self.log_position = 0
        self._number = 0  # of the last record cut; never used twice, or a late ack could pass for another's
        self.durable_number = 0  # of the last record that the log has
        self._begin("")

    def _begin(self, created: str) -> None:
        self.created = created
        self.position = 0
        self.high = self.high_at = 0
        self.settled = SettledSet()
        self.recovered = 0  # up to here, what the feed brings may be settled already, or held
        # What a former owner's handlers still work on, or have ended: not handed out here. Its subject, once fed.
        self.held: dict[int, bytes | None] = {}
        self.dropped: set[int] = set()  # singly and on purpose: settled, but perhaps in an index still
        self.incomplete: dict[bytes, int] = {}
        self.ahead: set[bytes] = set()  # subjects whose part of the backlog isn't taken from the catch-up
        self.catching_up = False
        self.tail = 0  # where the tail feed stands while the main feed catches up
        self.purged = self.last_purge = self.last_probe = 0
        # Settled messages up to here are deleted from the stream; of a later stream each one is, at once.
        self.erased_to = _ALL if self.id.kind == "later" else 0
        self.stragglers: list[int] = []
        self._news: list[int] = []
        self._since = 0
        self._sending: Append | None = None
        self._appends = 0
        self.checkpoint_due = True
        self.delayed = Delayed()
        self.marks = Marks()

    # ---- take-over and identity

    def recover(self, log: settlelog.LogState, state: LaneState, high_at: int | None) -> bool:
        """Start from what the log says, if it speaks of this very stream; False if it doesn't.

        `high_at` is the arrival time of the message that stands at the log's `high` now; 0 if it is gone, None
        if there can't be one.
        """
        self._begin(state.created)
        # What the stream holds is part of its identity, fed or not: the catch-up counts on it.
        self.high, self.high_at = state.last, state.at
        if log.created == "":
            return True
        if high_at and log.high_at and high_at != log.high_at:
            return False
        if not same_stream(log.created, log.high, 0, state):
            return False
        self.settled, self.marks = log.settled, Marks(log.marks)
        if state.last == log.high:
            self.high_at = state.at or log.high_at
        spans = list(log.settled.above())
        self.recovered = max([log.settled.watermark, *(last for _, last in spans)])
        watermark = log.settled.watermark
        if self.id.kind == "later":
            self.stragglers = [s for first, last in [(1, watermark), *spans] for s in range(first, last + 1)]
        else:
            self.position = self.erased_to = watermark
            self.purged = max(0, min(watermark, state.first - 1))
        return True

    @property
    def seen(self) -> Seen:
        """What the stream is recognised by."""
        return Seen(self.created, self.high, self.high_at, self.purged)

    def same(self, state: LaneState, high_at: int | None) -> bool:
        return self.seen.same(state, high_at)

    def abandon(self) -> None:
        """This object's part is over: nothing more of it is handed out, and results of it are void."""
        self._end()
        self.fenced = True
        self.handover = None

    def stop(self, running: Iterable[int]) -> None:
        """Nothing more of it is handed out here; these are still being handled, and may end."""
        self.handover = HandOver(self.generation, self.seen, set(running))
        self._end()

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
            sending = self._sending
            done = {*self._news, *(sending.sequences if sending is not None else [])}
            self.handover.done = sorted(done)[:_MOST_DONE]
            marked = {*self.marks.news, *(sending.marked if sending is not None else [])} - done
            self.handover.failed += [(sequence, own(self.marks.of.get(sequence, 0))) for sequence in sorted(marked)]
            self.handover.over = True

    def untouched(self, sequence: int, generation: int) -> None:
        """A message handed out before `stop` wasn't handled after all: the next owner may have it."""
        over = self.handover
        if over is not None and generation == over.generation and sequence in over.running:
            over.running.discard(sequence)
            over.on_change()

    def current(self, sequence: int, generation: int) -> bool:
        """Whether a message handed out in this generation is still this lane's to end."""
        over = self.handover
        return generation == self.generation or (
            over is not None and generation == over.generation and sequence in over.running
        )

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
        self._news_since(now)
        for sequence in sequences:
            self.marks.let_go(sequence)
            subject = self.held.pop(sequence, None)
            if subject is None or sequence in self.settled:
                continue  # it wasn't held, or it will come in by the feed
            queue = self._queue(subject, None)
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

    def reset(self, state: LaneState) -> None:
        """The stream was replaced or rolled back: all that is known of it is void."""
        self.generation += 1
        if self.handover is not None:
            self.handover.running.clear()  # what they return is void, too
        for queue in self.queues.values():
            queue.forget(self, self._limits)
        self._begin(state.created)
        self.high, self.high_at = state.last, state.at
        for queue in self.queues.values():  # what is left of it is of the other stream, and nobody has been told of it
            if queue.hand or queue.behind:
                self._at_hand(queue)

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
        if self.catching_up:
            if subject in self.ahead:
                return
            self._count_down(subject)
        if sequence <= self.recovered and self.keeps(subject, sequence):
            return
        # a NamedTuple's own constructor costs three times as much as the tuple's
        entry = tuple.__new__(Entry, (self, sequence, at, headers, body))
        queue = self.queues.get(subject) or self._queue(subject, entry)
        if queue is not None and queue.arrive(entry, self._limits):
            self._at_hand(queue)

    def take_in_tail(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        """The tail feed's sink while the main feed still catches up."""
        if sequence > self.tail + 1:
            self.settled.add_run(self.tail + 1, sequence - 1)
        self.tail = sequence
        if sequence > self.high:
            self.high, self.high_at = sequence, at
        if sequence <= self.recovered and self.keeps(subject, sequence):
            return
        entry = Entry(self, sequence, at, headers, body)
        queue = self._queue(subject, entry)
        if queue is None:
            return
        if subject not in self.incomplete:
            if queue.arrive(entry, self._limits):
                self._at_hand(queue)
        else:  # what came before it isn't all there yet: it waits its turn in the spill
            queue.spill(sequence)

    def expect_backlog(self, counts: dict[str, int], last: int) -> None:
        """What the lane held, by subject, when the catch-up up to `last` began."""
        self.incomplete = {subject.encode(): count for subject, count in counts.items() if count > 0}
        self.catching_up = True
        self.tail = last

    def take_ahead(self, few: int, most: int) -> list[Queue]:
        """Queues with up to `few` messages in the backlog, `most` of them, needn't wait for the catch-up: what they
        have is found by its subject, and the catch-up passes over it.
        """
        found: list[Queue] = []
        for subject, count in sorted(self.incomplete.items(), key=itemgetter(1))[:most]:
            queue = self._queue(subject, None) if count <= few else None
            if queue is not None:
                queue.spill(self.position + 1, count)
                queue.arrived += count
                self.ahead.add(subject)
                del self.incomplete[subject]
                found.append(queue)
        return found

    def caught_up(self, last: int) -> list[Queue]:
        """The catch-up has brought all up to `last`, from here on the tail feed is the main one. Returns the
        queues for which something came in meanwhile.
        """
        if last > self.position:
            self.settled.add_run(self.position + 1, last)
        self.position = max(self.position, self.tail)
        self.incomplete.clear()
        self.ahead.clear()
        self.catching_up = False
        return [queue for queue in self.queues.values() if queue.spilled]

    def take_in_later(self, subject: bytes, sequence: int, at: int, headers: bytes, body: bytes) -> None:
        """The sink of a later stream's feeds: keep sequence and due time, read the payload when it is due."""
        if sequence > self.high:
            self.high, self.high_at = sequence, at
        if self.keeps(subject, sequence):
            return
        if subject not in self.queues and self._queue(subject, Entry(self, sequence, at, headers, body)) is None:
            return
        self.queues[subject].sized(len(headers) + len(body))
        self.delayed.add(subject, sequence, h.number(headers, h.DUE, at))

    def release_due(self, store_now: int, limit: int) -> list[Queue]:
        """Move up to `limit` messages whose time has come into their queues; the queues that got some."""
        touched: dict[int, Queue] = {}
        for subject, sequence in self.delayed.release(store_now, limit):
            queue = self.queues[subject]
            queue.add_due(sequence)
            touched[id(queue)] = queue
        return list(touched.values())

    def queue_of(self, subject: bytes) -> Queue | None:
        """The queue of a subject; None if it belongs nowhere."""
        return self._queue(subject, None)

    def _queue(self, subject: bytes, entry: Entry | None) -> Queue | None:
        queue = self.queues.get(subject)
        if queue is None:
            queue = self._open_queue(self, subject, entry)
            if queue is not None:
                self.queues[subject] = queue
        return queue

    def _count_down(self, subject: bytes) -> None:
        left = self.incomplete.get(subject, 0) - 1
        if left > 0:
            self.incomplete[subject] = left
        else:
            self.incomplete.pop(subject, None)

    # ---- settling

    def settle(self, sequence: int, generation: int, now: int) -> bool:
        """A message has ended for good; durable once the log's next record is acknowledged, or the next owner's. False
        if it isn't this lane's any more.
        """
        if generation != self.generation:
            ending = self._ends_late(sequence, generation)
            if ending is not None:
                return ending
        if not self._news and self._sending is None:
            self._since = now if not self.marks.news else self._since
        self._news.append(sequence)
        return True

    def _ends_late(self, sequence: int, generation: int) -> bool | None:
        """After `stop`: None if it can still be settled here, else whether it is for the next owner to settle."""
        over = self.handover
        if over is None or generation != over.generation or sequence not in over.running:
            return False
        over.running.discard(sequence)
        if not over.over:
            return None
        over.done.append(sequence)
        over.on_change()
        return True

    @property
    def fed_to(self) -> int:
        """All up to here has come in, by the main feed or the tail feed."""
        return self.tail if self.catching_up else self.position

    @property
    def unsettled_news(self) -> int:
        """Messages that are done, but not yet durably so."""
        sending = len(self._sending.sequences) + len(self._sending.marked) if self._sending else 0
        return len(self._news) + len(self.marks.news) + sending

    def awaits_log(self, sequences: Iterable[int]) -> bool:
        """Whether any of these is done, or has failed, but not yet durably so."""
        sending = [*self._sending.sequences, *self._sending.marked] if self._sending is not None else []
        return not {*self._news, *self.marks.news, *sending}.isdisjoint(sequences)

    def oldest_news(self) -> int | None:
        """Since when (monotonic ns) the oldest of them has been waiting."""
        if self._sending is not None and self._sending.sequences:
            return self._sending.since
        return self._since if self._news or self.marks.news else None

    def mark_failed(self, sequence: int, again_at: int, now: int) -> None:
        """An attempt has ended, and the message stays where it is: the log says how many there were, and when the next
        one is due (unix ns).
        """
        self._news_since(now)
        self.marks.failed(sequence, again_at)

    def mark_as_told(self, sequence: int, mark: int, now: int) -> None:
        """What a former owner knew of it, and hadn't in the log."""
        if sequence not in self.settled and self.marks.of.get(sequence, 0) != mark:
            self._news_since(now)
            self.marks.told_of(sequence, mark)

    def failed_late(self, sequence: int, generation: int, again_at: int, now: int) -> bool:
        """The same after `stop`: it is for the next owner to hear, by the log or from whoever tells of the hand-over.
        False if it isn't this lane's any more.
        """
        over = self.handover
        if over is None or generation != over.generation or sequence not in over.running:
            return False
        self.mark_failed(sequence, again_at, now)
        if over.over:
            over.failed.append((sequence, self.marks.of[sequence]))
        over.running.discard(sequence)
        over.on_change()
        return True

    def mark_died(self, sequence: int, now: int, *, counts: bool, confirmed: bool) -> None:
        """It was in flight when its process died."""
        self._news_since(now)
        self.marks.died(sequence, counts=counts, confirmed=confirmed)

    def mark_cleared(self, sequence: int, now: int) -> None:
        """A suspect has ended, and the process lives."""
        self._news_since(now)
        self.marks.cleared(sequence)

    def _news_since(self, now: int) -> None:
        if not self._news and not self.marks.news and self._sending is None:
            self._since = now

    def put_off_checkpoint(self) -> None:
        """It is too large for now: the log goes on growing, until deletes have made it smaller."""
        self.checkpoint_due = False
        self._appends = 0

    def cut(self, now: int, *, fence: bool = False) -> Append | None:
        """The next record; None while the last one is under way or there is nothing to say (but for a `fence`)."""
        news = self._news or self.marks.news
        if self._sending is not None or self.fenced or not (news or self.checkpoint_due or fence):
            return None
        sequences = sorted(set(self._news))  # a missing one may be found twice: by a probe, and when it is read
        self._news = []
        watermark = self.durable_watermark
        if sequences and sequences[0] <= watermark:
            sequences = [s for s in sequences if s > watermark]
        spans = self._unerased(sequences) if self.checkpoint_due else runs(sequences)
        marked: list[int] = []
        marks = b""
        if self.marks.of or self.marks.news:
            marked = self.marks.told(_ALL if self.checkpoint_due else _MOST_MARKS)
            told = {*marked, *self.marks.of} if self.checkpoint_due else marked
            marks = settlelog.pack_marks(self.marks.pairs(sorted(s for s in told if s > watermark)), watermark)
        self._number += 1
        self._sending = Append(
            settlelog.Record(
                settlelog.VERSION, self.epoch, self._number, self.created, self.high, self.high_at,
                watermark, settlelog.pack(spans, watermark), self.checkpoint_due, marks,
            ),
            sequences, self._since, self.generation, marked,
        )  # fmt: skip
        self._since = now
        return self._sending

    def acknowledged(self, append: Append) -> None:
        """The log has it: these messages will not be handled again."""
        if append is not self._sending:
            return
        self._sending = None
        self.durable_number = append.record.number
        self.settled.add_sorted(append.sequences)
        if self.marks.of:
            self.marks.drop(append.sequences)
        self._appends = 0 if append.record.checkpoint else self._appends + 1
        self.checkpoint_due = self._appends >= CHECKPOINT_EVERY
        if self.erased_to > self.settled.watermark:
            self.stragglers += [s for s in append.sequences if s <= self.erased_to]

    def withdraw(self, append: Append) -> None:
        """It didn't reach the log: its messages go into the next record."""
        if append is not self._sending:
            return
        self._sending = None
        self._since = append.since
        self._news = append.sequences + self._news
        self.marks.news.update(append.marked)

    @property
    def durable_watermark(self) -> int:
        """All up to here is settled, in the log as well: it may be purged. 0 for a later stream, whose feeds
        pass over what isn't due for long.
        """
        return self.settled.watermark if self.id.kind == "lanes" else 0

    def _unerased(self, news: list[int]) -> list[tuple[int, int]]:
        """What a checkpoint must repeat: settled, and still in the stream."""
        spans = list(self.settled.above(self.erased_to + 1)) if self.id.kind == "lanes" else []
        return sorted([*spans, *runs(sorted(self._stragglers())), *runs(news)])

    def _stragglers(self) -> list[int]:
        """But for those that a purge removes anyway."""
        floor = self.durable_watermark
        self.stragglers = [s for s in self.stragglers if s > floor]
        return self.stragglers

    # ---- what of the stream may be removed

    def to_erase(self, count: int) -> list[int]:
        """Up to `count` settled messages above the watermark to delete one by one: `erased` ends each batch."""
        found = self._stragglers()[:count]
        if self.id.kind == "later":
            return found
        for first, last in self.settled.above(self.erased_to + 1):
            if len(found) >= count:
                break
            found += range(first, min(last, first + count - len(found) - 1) + 1)
        return found

    def erased(self, sequences: list[int]) -> None:
        """These are gone from the stream: no checkpoint needs to name them any more."""
        gone = set(sequences)
        self.stragglers = [s for s in self.stragglers if s not in gone]
        if self.id.kind == "later":
            for sequence in sequences:
                self.settled.discard(sequence)
            return
        before, self.erased_to = self.erased_to, max(self.erased_to, *sequences)
        # what was settled in between while the deletes were under way
        for first, last in self.settled.above(before + 1):
            if first > self.erased_to:
                break
            self.stragglers += [s for s in range(first, min(last, self.erased_to) + 1) if s not in gone]


def _none(*_: object) -> None:
    """The queue of a message that comes in when nobody waits for it any more."""
