"""Writes a lane's settle log as its owner: collects changes, tracks the append under way, decides when a checkpoint is
due. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.lane.settled_set import runs
from evenlane.engine.core.records import settle_record
from evenlane.engine.core.wire.varint_runs import pack_pairs, pack_runs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.lane.attempts import AttemptMarks
    from evenlane.engine.core.lane.handoff_state import StreamIdentity
    from evenlane.engine.core.lane.hour_progress import HourProgress
    from evenlane.engine.core.lane.settled_set import SettledSet
    from evenlane.engine.core.lane.truncation import Truncation

CHECKPOINT_EVERY = 100  # appends; a takeover reads at most this many records
HEADERS = 1024  # bytes that a record's headers may take
_MOST_MARKS = 1_000  # changed marks in one record, so that it fits a message


class Append(NamedTuple):
    """One record to append to the log. `Lane.next_append` makes it, `SettleLog.on_append` or `SettleLog.withdraw`
    ends it.

    `sequences` are the messages that it settles, `marked` those whose marks it carries; `since` (monotonic ns) is the
    time since which the oldest of them has been waiting.
    """

    record: settle_record.SettleRecord
    sequences: list[int]
    since: int
    marked: list[int]


class SettleLog:
    """The settle log of one lane, as written under one epoch. `now` is monotonic ns throughout.

    Invariants:
    - At most one append is under way: `_sending`. Further changes collect in `unsynced` and in the marks.
    - `position` is the log's end as this owner knows it, `durable_number` the number of the last record that is known
      to be stored. Numbers are never reused, or a late acknowledgement could pass for another record's.
    - `logged_watermark` is that of the last record that is known to be stored, and `logged_at` (monotonic ns) when that
      became known.
    - `reset` (unix ns) is the subscription's last reset that the lane follows; 0: none.
    - Once `closed` is set, the last record says that the epoch has ended cleanly, and nothing is appended any more.
    """

    def __init__(self, epoch: int, lease: int) -> None:
        self._epoch, self._lease = epoch, lease
        self.position = 0
        self.number = 0  # of the last record made
        self.durable_number = 0
        self.reset = 0
        self.closed = False

    def begin(self, settled: SettledSet, marks: AttemptMarks, removal: Truncation, hours: HourProgress) -> None:
        """Log this stream from now on; changes of an earlier stream are dropped."""
        self._settled, self._marks, self._removal, self._hours = settled, marks, removal, hours
        self.unsynced: list[int] = []  # settled messages; always the same list, because `Lane.settle` appends to it
        self._since = 0
        self._sending: Append | None = None
        self._appends = 0
        self.logged_watermark = self.logged_at = 0
        self.checkpoint_due = True

    @property
    def has_begun(self) -> bool:
        """Whether the log has a record of this epoch."""
        return self.durable_number > 0

    @property
    def lacks_watermark(self) -> bool:
        """Whether the watermark has risen since the last record: each record has that of before its own messages."""
        return self._removal.durable_watermark > self.logged_watermark

    @property
    def may_have_begun(self) -> bool:
        """Whether the log may have a record of this epoch: the fence was sent, whether or not it was acknowledged."""
        return self.number > 0

    # ---- changes

    def note(self, now: int) -> None:
        """Announce a change: if none is waiting, the oldest has been waiting since `now`."""
        if not self.unsynced and not self._marks.unsynced and self._sending is None:
            self._since = now

    def mark_failed(self, sequence: int, again_at: int, now: int) -> None:
        """Mark a failed attempt of a message that stays in its lane; the next attempt is due at `again_at`
        (unix ns).
        """
        self.note(now)
        self._marks.mark_failed(sequence, again_at)

    def merge_mark(self, sequence: int, mark: int, now: int) -> None:
        """Merge a mark that a previous owner reports and hadn't logged."""
        if sequence not in self._settled and self._marks.of.get(sequence, 0) != mark:
            self.note(now)
            self._marks.merge(sequence, mark)

    def mark_died(self, sequence: int, now: int, *, counts: bool, confirmed: bool) -> None:
        """Mark a message that was in flight when its process died."""
        self.note(now)
        self._marks.mark_died(sequence, counts=counts, confirmed=confirmed)

    def mark_cleared(self, sequence: int, now: int) -> None:
        """Clear a suspect that has ended while its process lives on."""
        self.note(now)
        self._marks.mark_cleared(sequence)

    # ---- changes that aren't durable yet

    @property
    def unsynced_count(self) -> int:
        """The number of messages that are settled, or have failed, but not yet durably."""
        sending = len(self._sending.sequences) + len(self._sending.marked) if self._sending else 0
        return len(self.unsynced) + len(self._marks.unsynced) + sending

    @property
    def covering_number(self) -> int:
        """The number of a record: once `durable_number` has reached it, all messages settled by now are durable."""
        if self.unsynced:
            return self.number + 1
        sending = self._sending
        return sending.record.number if sending is not None and sending.sequences else self.durable_number

    def oldest_unsynced(self) -> int | None:
        """The time (monotonic ns) since which the oldest change has been waiting; None if there is none."""
        sending = self._sending
        if sending is not None and (sending.sequences or sending.marked):
            return sending.since
        return self._since if self.unsynced or self._marks.unsynced else None

    def list_unsynced(self) -> tuple[set[int], set[int]]:
        """The messages with changes that aren't durable: those that are settled, and those whose mark has changed."""
        sending = self._sending
        if sending is None:
            return {*self.unsynced}, {*self._marks.unsynced}
        return {*self.unsynced, *sending.sequences}, {*self._marks.unsynced, *sending.marked}

    def is_awaiting(self, sequences: Iterable[int]) -> bool:
        """Whether any of these messages has changes that aren't durable."""
        done, marked = self.list_unsynced()
        return not (done | marked).isdisjoint(sequences)

    # ---- one record after another

    def next_append(
        self, seen: StreamIdentity, now: int, *, horizon: int, fence: bool = False, last: bool = False
    ) -> Append | None:
        """See `Lane.next_append`. `last`: no message of the epoch runs any more, so a record that leaves nothing to
        write is marked as clean.
        """
        if self._sending is not None or self.closed:
            return None
        last = last and self.has_begun  # else the log's last record is another owner's, and must stay the last
        if not (self.unsynced or self._marks.unsynced or self.checkpoint_due or fence or last):
            return None
        sequences = sorted(set(self.unsynced))  # a missing message may be found twice: by a probe, and when it is read
        self.unsynced.clear()
        watermark = self._removal.durable_watermark
        if sequences and sequences[0] <= watermark:
            sequences = [s for s in sequences if s > watermark]
        spans = self._removal.list_unerased(sequences) if self.checkpoint_due else runs(sequences)
        marked, marks = self._marks_to_write(watermark)
        self.number += 1
        self._sending = Append(
            settle_record.SettleRecord(
                settle_record.VERSION, self._epoch, self.number, seen.created, seen.high, seen.high_at,
                watermark, pack_runs(spans, watermark), self.checkpoint_due, marks,
                horizon if horizon > watermark else 0, last and not self._marks.unsynced, self._lease,
                self._pack_hours() if self.checkpoint_due else b"", self.reset,
            ),
            sequences, self._since, marked,
        )  # fmt: skip
        self._since = now
        return self._sending

    def _pack_hours(self) -> bytes:
        return pack_pairs(sorted(self._hours.positions().items()), 0)

    def _marks_to_write(self, watermark: int) -> tuple[list[int], bytes]:
        """The sequences whose changed marks the next record carries, and all marks that it carries, packed."""
        marks = self._marks
        if not marks.of and not marks.unsynced:
            return [], b""
        marked = marks.take_unsynced(len(marks.unsynced) if self.checkpoint_due else _MOST_MARKS)
        sequences = {*marked, *marks.of} if self.checkpoint_due else marked
        return marked, pack_pairs(marks.pairs(sorted(s for s in sequences if s > watermark)), watermark)

    def on_append(self, append: Append, now: int = 0) -> None:
        """The append is stored: its messages will not be handled again."""
        if append is not self._sending:
            return
        self._sending = None
        self.logged_watermark, self.logged_at = append.record.watermark, now
        self.durable_number = append.record.number
        self.closed = bool(append.record.clean)
        self._settled.add_sorted(append.sequences)
        if self._marks.of:
            self._marks.drop(append.sequences)
        self._appends = 0 if append.record.checkpoint else self._appends + 1
        self.checkpoint_due = self._appends >= CHECKPOINT_EVERY and not self.closed  # after it, nothing is appended
        self._removal.note_settled(append.sequences)
        self._hours.note_settled(append.sequences)

    def withdraw(self, append: Append) -> None:
        """The append wasn't stored: its messages go into the next record."""
        if append is not self._sending:
            return
        self._sending = None
        self._since = append.since
        self.unsynced[:0] = append.sequences
        self._marks.unsynced.update(append.marked)

    def defer_checkpoint(self) -> None:
        """Defer a checkpoint that is too large for now: the log keeps growing until deletes have made the checkpoint
        smaller.
        """
        self.checkpoint_due = False
        self._appends = 0
