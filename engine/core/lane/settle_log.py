"""A lane's settle log as its owner writes it: what is news, the append under way, when a checkpoint is due. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evenlane.engine.core.lane import settle_record
from evenlane.engine.core.lane.settled_set import runs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from evenlane.engine.core.lane.attempts import AttemptMarks
    from evenlane.engine.core.lane.handoff_state import StreamIdentity
    from evenlane.engine.core.lane.settled_set import SettledSet
    from evenlane.engine.core.lane.truncation import Truncation

CHECKPOINT_EVERY = 100  # appends; at most this many records are read at a take-over
HEADERS = 1024  # bytes that a record's headers may take
_MOST_MARKS = 1_000  # news of them in one record, so that it fits a message


class Append(NamedTuple):
    """One record to append to the log: `Lane.cut` makes it, `acknowledged` or `withdraw` of `SettleLog` ends it."""

    record: settle_record.Record
    sequences: list[int]
    since: int
    marked: list[int]


class SettleLog:
    """What the log is told under one epoch. `position` is where it stands, `durable_number` that of the last record
    which it has. Once it is `closed` its last record says that the epoch has ended, and nothing is appended any more.
    `now` is monotonic ns throughout.
    """

    def __init__(self, epoch: int, lease: int) -> None:
        self._epoch, self._lease = epoch, lease
        self.position = 0
        self.number = 0  # of the last record cut; never used twice, or a late ack could pass for another's
        self.durable_number = 0
        self.closed = False

    def begin(self, settled: SettledSet, marks: AttemptMarks, removal: Truncation) -> None:
        """Of this stream the log is told from now on; what was news of another one is void."""
        self._settled, self._marks, self._removal = settled, marks, removal
        self.news: list[int] = []  # done; it stays the same list, as `Lane.settle` adds to it
        self._since = 0
        self._sending: Append | None = None
        self._appends = 0
        self.checkpoint_due = True

    @property
    def begun(self) -> bool:
        """Whether the log has a record of this epoch."""
        return self.durable_number > 0

    @property
    def may_have_begun(self) -> bool:
        """Whether the log may have one: the fence was sent, answered or not."""
        return self.number > 0

    # ---- news

    def note(self, now: int) -> None:
        """Something becomes news: unless other news waits already, the oldest has been waiting since now."""
        if not self.news and not self._marks.news and self._sending is None:
            self._since = now

    def mark_failed(self, sequence: int, again_at: int, now: int) -> None:
        """An attempt has ended, and the message stays where it is: the log says how many there were, and when the next
        one is due (unix ns).
        """
        self.note(now)
        self._marks.failed(sequence, again_at)

    def mark_as_told(self, sequence: int, mark: int, now: int) -> None:
        """What a former owner knew of it, and hadn't in the log."""
        if sequence not in self._settled and self._marks.of.get(sequence, 0) != mark:
            self.note(now)
            self._marks.told_of(sequence, mark)

    def mark_died(self, sequence: int, now: int, *, counts: bool, confirmed: bool) -> None:
        """It was in flight when its process died."""
        self.note(now)
        self._marks.died(sequence, counts=counts, confirmed=confirmed)

    def mark_cleared(self, sequence: int, now: int) -> None:
        """A suspect has ended, and the process lives."""
        self.note(now)
        self._marks.cleared(sequence)

    # ---- what isn't durable yet

    @property
    def unsettled_news(self) -> int:
        """Messages that are done, or have failed, but not yet durably so."""
        sending = len(self._sending.sequences) + len(self._sending.marked) if self._sending else 0
        return len(self.news) + len(self._marks.news) + sending

    def oldest_news(self) -> int | None:
        """Since when (monotonic ns) the oldest of them has been waiting."""
        if self._sending is not None and self._sending.sequences:
            return self._sending.since
        return self._since if self.news or self._marks.news else None

    def untold(self) -> tuple[set[int], set[int]]:
        """Which they are: those that are done, and those that have news of their marks."""
        sending = self._sending
        if sending is None:
            return {*self.news}, {*self._marks.news}
        return {*self.news, *sending.sequences}, {*self._marks.news, *sending.marked}

    def awaits(self, sequences: Iterable[int]) -> bool:
        """Whether any of these is among them."""
        done, marked = self.untold()
        return not (done | marked).isdisjoint(sequences)

    # ---- one record after another

    def cut(
        self, seen: StreamIdentity, now: int, *, horizon: int, fence: bool = False, last: bool = False
    ) -> Append | None:
        """See `Lane.cut`. `last`: nothing of the epoch runs any more; a record that leaves nothing unsaid is clean."""
        if self._sending is not None or self.closed:
            return None
        last = last and self.begun  # else the log's last word is another owner's, and stands
        if not (self.news or self._marks.news or self.checkpoint_due or fence or last):
            return None
        sequences = sorted(set(self.news))  # a missing one may be found twice: by a probe, and when it is read
        self.news.clear()
        watermark = self._removal.durable_watermark
        if sequences and sequences[0] <= watermark:
            sequences = [s for s in sequences if s > watermark]
        spans = self._removal.unerased(sequences) if self.checkpoint_due else runs(sequences)
        marked, marks = self._marks_to_tell(watermark)
        self.number += 1
        self._sending = Append(
            settle_record.Record(
                settle_record.VERSION, self._epoch, self.number, seen.created, seen.high, seen.high_at,
                watermark, settle_record.pack(spans, watermark), self.checkpoint_due, marks,
                horizon if horizon > watermark else 0, last and not self._marks.news, self._lease,
            ),
            sequences, self._since, marked,
        )  # fmt: skip
        self._since = now
        return self._sending

    def _marks_to_tell(self, watermark: int) -> tuple[list[int], bytes]:
        """Whose marks the next record says that haven't been told yet, and all that it says of marks."""
        marks = self._marks
        if not marks.of and not marks.news:
            return [], b""
        marked = marks.told(len(marks.news) if self.checkpoint_due else _MOST_MARKS)
        told = {*marked, *marks.of} if self.checkpoint_due else marked
        return marked, settle_record.pack_marks(marks.pairs(sorted(s for s in told if s > watermark)), watermark)

    def acknowledged(self, append: Append) -> None:
        """The log has it: these messages will not be handled again."""
        if append is not self._sending:
            return
        self._sending = None
        self.durable_number = append.record.number
        self.closed = bool(append.record.clean)
        self._settled.add_sorted(append.sequences)
        if self._marks.of:
            self._marks.drop(append.sequences)
        self._appends = 0 if append.record.checkpoint else self._appends + 1
        self.checkpoint_due = self._appends >= CHECKPOINT_EVERY
        self._removal.settled(append.sequences)

    def withdraw(self, append: Append) -> None:
        """It didn't reach the log: its messages go into the next record."""
        if append is not self._sending:
            return
        self._sending = None
        self._since = append.since
        self.news[:0] = append.sequences
        self._marks.news.update(append.marked)

    def put_off_checkpoint(self) -> None:
        """It is too large for now: the log goes on growing, until deletes have made it smaller."""
        self.checkpoint_due = False
        self._appends = 0
