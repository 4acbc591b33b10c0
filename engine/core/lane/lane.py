"""Holds a lane as its owner sees it: the identity of its stream, which messages are settled, and which may still end.
Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenlane.engine.core.lane.attempts import AttemptMarks, own
from evenlane.engine.core.lane.handoff_state import HandoffState, StreamIdentity, is_same_stream
from evenlane.engine.core.lane.hour_progress import HourProgress
from evenlane.engine.core.lane.settle_log import SettleLog
from evenlane.engine.core.lane.settled_set import SettledSet
from evenlane.engine.core.lane.truncation import DelayTruncation, Truncation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.base.names import LaneId
    from evenlane.engine.core.lane.log_state import LogState
    from evenlane.engine.core.lane.settle_log import Append
    from evenlane.engine.core.ports import LaneState


class Lane:
    """One stream of a partition, owned under one epoch and claimed under a lease. `FedLane` adds feeds and queues.

    `log` is the settle log, `removal` says which messages may be removed from the stream. `now` is monotonic ns
    throughout.

    Invariants:
    - A message handed out in an older `generation` is stale: its result is ignored. The exception is a message in
      `handoff.running`, which may still end.
    - `unsynced` is `log.unsynced`, the very same list: settled messages that aren't logged yet.
    - A message in `held` isn't handed out: a previous owner's handler is processing it, or has ended it. Its value is
      the subject once the feed has delivered the message, None before.
    - Once `fenced` is set, nothing more is appended to the log.
    """

    def __init__(self, lane: LaneId, epoch: int, lease: int = 0) -> None:
        self.id, self.epoch, self.lease = lane, epoch, lease
        # a delay stream, or a named subscription's own stream of retries, which is like one: its messages are delayed
        # ones and retries
        self.later = lane.kind != "lanes"
        self.generation = 0  # grows with each reset, and when the lane ends
        self.verified = -1  # the store's incarnation in which the identity was last confirmed
        self.fenced = False
        self.handoff: HandoffState | None = None  # set by `stop`: no more messages are handed out here
        self.log = SettleLog(epoch, lease)
        self.is_shared = False  # other subscriptions may need messages that are settled here; set before `recover`
        self._begin("", 0, 0)

    def _begin(self, created: str, high: int, high_at: int, horizon: int = 0) -> None:
        # `high` covers all that the stream holds, delivered or not: the catch-up relies on it.
        self.created, self.high, self.high_at = created, high, high_at
        self.horizon = horizon  # up to here, a message is recorded in flight before it starts (crash_horizon.py)
        self.recovered = 0  # up to here, messages of the feed may be settled already, or held
        self.held: dict[int, bytes | None] = {}
        # Messages that blocked a previous owner's event loop until its process ended itself, and for how many s.
        self.blocked: dict[int, float] = {}
        self.dropped: set[int] = set()  # dropped one by one, by command: settled, but a queue may still have them
        self._init_settled(SettledSet(), AttemptMarks(), self._new_hours())

    def _init_settled(self, settled: SettledSet, marks: AttemptMarks, hours: HourProgress) -> None:
        self.settled, self.marks, self.hours = settled, marks, hours
        self.removal = DelayTruncation(settled) if self.later else Truncation(settled)
        self.log.begin(settled, marks, self.removal, hours)
        self.unsynced = self.log.unsynced  # settled, not yet logged; adding the first one must notify log and settler

    def _new_hours(self, positions: dict[int, int] | None = None) -> HourProgress:
        return HourProgress(positions if self.is_shared else None, tracks=self.is_shared and self.id.kind == "later")

    # ---- takeover and identity

    def recover(self, log: LogState, state: LaneState, high_at: int | None, horizon: int = 0) -> bool:
        """Start from the state of the settle log, if it belongs to this very stream.

        False if it doesn't: nothing is then known of the last owner, and the whole stream is within the horizon.
        `high_at` is the arrival time of the message that has the log's sequence `high` now; 0 if it is gone, None if
        there can't be one.
        """
        self._begin(state.created, state.last, state.at, state.last)
        if log.created == "":
            self.horizon = horizon
            return True
        if high_at and log.high_at and high_at != log.high_at:
            return False
        if not is_same_stream(log.created, log.high, 0, state):
            return False
        self.horizon = horizon
        self._init_settled(log.settled, AttemptMarks(log.marks), self._new_hours(log.hours))
        self.removal.take_over(state.first)
        if state.last == log.high:
            self.high_at = state.at or log.high_at
        watermark = log.settled.watermark
        self.recovered = max([watermark, *(last for _, last in log.settled.above())])
        return True

    def begin_after(self, watermark: int, state: LaneState, horizon: int) -> None:
        """Start as the subscription's reset says: what is up to `watermark` counts as settled, and nothing above it,
        whatever the settle log says. Attempts start again, too.
        """
        self._begin(state.created, state.last, state.at, horizon)
        self._init_settled(SettledSet(watermark), AttemptMarks(), self._new_hours())
        self.removal.take_over(state.first)
        self.recovered = watermark

    @property
    def seen(self) -> StreamIdentity:
        """The identity by which the stream is recognised."""
        return StreamIdentity(self.created, self.high, self.high_at, self.removal.purged)

    def is_same(self, state: LaneState, high_at: int | None) -> bool:
        return self.seen.is_same(state, high_at)

    @property
    def fed_to(self) -> int:
        """The sequence up to which the lane's feeds have come; `FedLane` overrides it."""
        return 0

    def reset(self, state: LaneState) -> None:
        """Start over with a stream that was replaced or rolled back: everything known of it is stale."""
        self.generation += 1
        if self.handoff is not None:
            self.handoff.running.clear()  # their results are stale, too
        self._begin(state.created, state.last, state.at, min(self.horizon, state.last))

    # ---- end of ownership

    def abandon(self) -> None:
        """End the lane: no more messages are handed out, and all results are stale."""
        self._end()
        self.fenced = True
        self.handoff = None

    def stop(self, running: Iterable[int]) -> None:
        """Begin the handoff: no more messages are handed out; those in `running` may still end."""
        self.handoff = HandoffState(self.generation, self.seen, set(running), reset=self.log.reset)
        self._end()

    def drop_running(self) -> None:
        """Drop the running handlers: the process ends, and they have killed nothing."""
        if self.handoff is not None:
            self.handoff.running.clear()

    @property
    def has_ended(self) -> bool:
        """Whether no message of the lane runs here any more, nor will."""
        return self.handoff is not None and not self.handoff.running

    @property
    def must_close(self) -> bool:
        """Whether the log still lacks the record of a clean end."""
        return self.has_ended and self.log.has_begun and not self.log.closed and not self.fenced

    def _end(self) -> None:
        self.generation += 1

    def cut_off(self) -> None:
        """Stop appending: results that aren't durable yet, and later ones, are for the next owner to settle."""
        self.fenced = True
        if self.handoff is not None:
            done, marked = self.log.list_unsynced()
            failed = [(sequence, own(self.marks.of.get(sequence, 0))) for sequence in sorted(marked - done)]
            self.handoff.cut_off(done, failed)

    def return_unstarted(self, sequence: int, generation: int) -> None:
        """Return a message that was handed out before `stop` and not handled: the next owner may start it."""
        if self.handoff is not None and self.handoff.is_running(sequence, generation):
            self.handoff.release(sequence)

    def is_current(self, sequence: int, generation: int) -> bool:
        """Whether the result of a message handed out in this generation is still accepted."""
        over = self.handoff
        return generation == self.generation or (over is not None and over.is_running(sequence, generation))

    # ---- messages held by a previous owner

    def hold(self, epoch: int, running: Iterable[int], done: Iterable[int] = ()) -> None:
        """Withhold messages until they are released: under this epoch they are still being handled (`running`), or have
        ended (`done`).

        The log records the former, since their holder may outlive this owner and then die.
        """
        running = [s for s in running if s not in self.settled]
        for sequence in running:
            self.marks.hold(sequence, epoch)
        self.held |= dict.fromkeys(s for s in [*running, *done] if s not in self.settled and s not in self.held)
        self.recovered = max([self.recovered, *self.held])

    def release(self, sequences: Iterable[int], now: int) -> list[tuple[bytes, int]]:
        """Release messages whose holder is gone and hasn't ended them: they may be handed out again. Returns subject
        and sequence of those that the feed has already delivered.
        """
        fed: list[tuple[bytes, int]] = []
        self.log.note(now)
        for sequence in sequences:
            self.marks.release(sequence)
            subject = self.held.pop(sequence, None)
            if subject is not None and sequence not in self.settled:  # else it wasn't held, or the feed will deliver it
                fed.append((subject, sequence))
        return fed

    def must_keep_out(self, subject: bytes, sequence: int) -> bool:
        """Whether an arriving message must not enter a queue: it is settled, dropped, or held."""
        if sequence in self.held:
            self.held[sequence] = subject
            return True
        return sequence in self.settled or sequence in self.dropped

    # ---- settling

    def settle(self, sequence: int, generation: int, now: int) -> bool:
        """Settle a message: its outcome is final. It is durable once the log's next record is acknowledged, or the next
        owner's.

        False if the message doesn't belong to this lane's owner any more.
        """
        if generation != self.generation:
            over = self.handoff
            if over is None or not over.is_running(sequence, generation):
                return False
            if over.settle(sequence):
                return True
        if not self.unsynced:
            self.log.note(now)
        self.unsynced.append(sequence)
        return True

    def mark_failed_late(self, sequence: int, generation: int, again_at: int, now: int) -> bool:
        """Mark a failed attempt as `SettleLog.mark_failed` does, after `stop`. The next owner learns of it from the
        log, or from the handoff. False if the message doesn't belong to this lane's owner any more.
        """
        over = self.handoff
        if over is None or not over.is_running(sequence, generation):
            return False
        self.log.mark_failed(sequence, again_at, now)
        over.mark_failed(sequence, self.marks.of[sequence])
        return True

    def next_append(self, now: int, *, fence: bool = False) -> Append | None:
        """The log's next record. None while the last one is under way, if there is nothing to write (except for a
        `fence`), and once the lane is fenced.
        """
        if self.fenced:
            return None
        return self.log.next_append(self.seen, now, horizon=self.horizon, fence=fence, last=self.has_ended)
