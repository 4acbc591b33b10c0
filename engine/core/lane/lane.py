"""A lane as its owner keeps it: which stream it is, what of it is settled, and what may still end. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.lane.attempts import AttemptMarks, own
from evenlane.engine.core.lane.handoff_state import HandoffState, StreamIdentity, same_stream
from evenlane.engine.core.lane.settle_log import SettleLog
from evenlane.engine.core.lane.settled_set import SettledSet
from evenlane.engine.core.lane.truncation import Truncation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.settle_log import Append
    from evenlane.engine.core.lane.settle_record import LogState
    from evenlane.engine.core.ports import LaneState


class Lane:
    """One stream of a partition under one epoch, claimed under a lease. `now` is monotonic ns throughout. `log` is told
    what is settled, `removal` says what of the stream may go. What comes in is `FedLane`'s.
    """

    def __init__(self, lane: LaneId, epoch: int, lease: int = 0) -> None:
        self.id, self.epoch, self.lease = lane, epoch, lease
        self.later = lane.kind == "later"  # its messages are delayed ones and retries
        self.generation = 0  # grows with each reset: results of an older one are void
        self.verified = -1  # the store's incarnation in which the identity was last confirmed
        self.fenced = False
        self.handover: HandoffState | None = None  # once nothing more of it is handed out here
        self.log = SettleLog(epoch, lease)
        self._begin("", 0, 0)

    def _begin(self, created: str, high: int, high_at: int, horizon: int = 0) -> None:
        # What the stream holds is part of its identity, fed or not: the catch-up counts on it.
        self.created, self.high, self.high_at = created, high, high_at
        self.horizon = horizon  # up to here, a message is recorded in flight before it starts (crash_horizon.py)
        self.recovered = 0  # up to here, what the feed brings may be settled already, or held
        # What a former owner's handlers still work on, or have ended: not handed out here. Its subject, once fed.
        self.held: dict[int, bytes | None] = {}
        self.blocked: dict[int, float] = {}  # what blocked former owners' event loops until their ends, for how many s
        self.dropped: set[int] = set()  # singly and on purpose: settled, but perhaps in an index still
        self._settled_before(SettledSet(), AttemptMarks())

    def _settled_before(self, settled: SettledSet, marks: AttemptMarks) -> None:
        self.settled, self.marks = settled, marks
        self.removal = Truncation(self.id.kind, settled)
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
        self._settled_before(log.settled, AttemptMarks(log.marks))
        self.removal.take_over(state.first)
        if state.last == log.high:
            self.high_at = state.at or log.high_at
        watermark = log.settled.watermark
        self.recovered = max([watermark, *(last for _, last in log.settled.above())])
        return True

    @property
    def seen(self) -> StreamIdentity:
        """What the stream is recognised by."""
        return StreamIdentity(self.created, self.high, self.high_at, self.removal.purged)

    def same(self, state: LaneState, high_at: int | None) -> bool:
        return self.seen.same(state, high_at)

    @property
    def fed_to(self) -> int:
        """All up to here has come in."""
        return 0

    def reset(self, state: LaneState) -> None:
        """The stream was replaced or rolled back: all that is known of it is void."""
        self.generation += 1
        if self.handover is not None:
            self.handover.running.clear()  # what they return is void, too
        self._begin(state.created, state.last, state.at, min(self.horizon, state.last))

    # ---- its end here

    def abandon(self) -> None:
        """This object's part is over: nothing more of it is handed out, and results of it are void."""
        self._end()
        self.fenced = True
        self.handover = None

    def stop(self, running: Iterable[int]) -> None:
        """Nothing more of it is handed out here; these are still being handled, and may end."""
        self.handover = HandoffState(self.generation, self.seen, set(running))
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

    def let_go(self, sequences: Iterable[int], now: int) -> list[tuple[bytes, int]]:
        """Who held these is gone, and hasn't ended them: their turn comes again. Subject and sequence of those that the
        feed has brought already.
        """
        fed: list[tuple[bytes, int]] = []
        self.log.note(now)
        for sequence in sequences:
            self.marks.let_go(sequence)
            subject = self.held.pop(sequence, None)
            if subject is not None and sequence not in self.settled:  # else it wasn't held, or will come in
                fed.append((subject, sequence))
        return fed

    def keeps(self, subject: bytes, sequence: int) -> bool:
        """Whether a message that comes in is settled, dropped, or held."""
        if sequence in self.held:
            self.held[sequence] = subject
            return True
        return sequence in self.settled or sequence in self.dropped

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
        """As `SettleLog.mark_failed`, after `stop`: it is for the next owner to hear, by the log or from whoever tells
        of the hand-over. False if it isn't this lane's any more.
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
